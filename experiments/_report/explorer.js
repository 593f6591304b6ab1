"use strict";
// A class capsule's pose in hand: sliders for its elements, the path to another pose, couplings.

(() => {
  const tool = document.getElementById("tool");
  if (!tool) return;
  const { classes, couplings, size, shape, seen, shown } = DATA;
  const movable = DATA.poses !== undefined;
  const decode = movable ? makeDecoder(DATA.decoder) : null;
  const signed = (z) => `${z < -0.05 ? "−" : z > 0.05 ? "+" : ""}${Math.abs(z).toFixed(1)} σ`;
  const [poses, typical, means, deviations, effects] =
    ["poses", "typical", "means", "deviations", "effects"].map((key) => (DATA[key] ? floats(DATA[key]) : null));
  const row = (all, i, length = size) => all.subarray(i * length, (i + 1) * length);
  const images = DATA.images.map((image, index) => ({
    ...image, index, poses: movable ? row(poses, index, seen.length * size) : null,
  }));

  // What can be chosen of a class: its mean pose, where the decoder is here, and its images.
  const choices = shown.map((label, k) => ({
    label,
    most: movable ? Math.max(...row(effects, k)) : 0,
    images: [
      ...(movable ? [{ label, predicted: label, poses: row(typical, k, seen.length * size) }] : []),
      ...images.filter((image) => image.label === label),
    ],
  }));
  const classOptions = choices.map(({ label }) => [label, classes[label]]);
  // The explorer opens on the classes whose pictures can be changed most.
  const opened = [...choices].sort((a, b) => b.most - a.most).slice(0, 2);

  const nameOf = ({ place, label }) =>
    `${place === undefined ? "mean pose" : `image ${place}`} of class ${classes[label]}`;
  const fullNameOf = (image) => nameOf(image)
    + (image.predicted === image.label ? "" : `, taken for ${classes[image.predicted]}`);
  const hint = (text) => element("p", { class: "hint" }, text);
  const figure = (content, caption) => element("figure", {}, content, element("figcaption", {}, caption));

  /** A copy of the pose of a capsule. */
  const poseOf = ({ image, capsule }) => Float32Array.from(row(image.poses, seen.indexOf(capsule)));

  /** What the decoder sees: the other classes' poses are zero where it is conditional. */
  function seenBy({ image, capsule, pose }) {
    const x = DATA.conditional ? new Float32Array(seen.length * size) : Float32Array.from(image.poses);
    x.set(pose, seen.indexOf(capsule) * size);
    return x;
  }

  function canvas(name, kind = "") {
    const made = element("canvas", { role: "img", "aria-label": name, class: kind });
    if (shape) [made.height, made.width] = shape;
    return made;
  }

  function draw(target, side, pose) {
    paint(target, decode(seenBy({ ...side, pose })), shape);
  }

  // ---- The two images ----

  const sides = { A: {}, B: {} }, { A, B } = sides;

  function choose(side, image, capsule) {
    side.image = image;
    side.capsule = capsule ?? (shown.includes(image.predicted) ? image.predicted : image.label);
    side.capsules?.set(side.capsule);
    if (movable) side.pose = poseOf(side);
    for (const button of side.thumbnails.children) button.setAttribute("aria-pressed", String(button.image === image));
    side.photo.hidden = image.place === undefined;
    if (image.place !== undefined) side.photo.src = image.picture;
    side.photo.alt = nameOf(image);
    side.caption.textContent = fullNameOf(image);
    if (movable) draw(side.own, side, side.pose);
    if (!(A.image && B.image)) return;
    if (movable && side === A) buildSliders();
    renderPath();
    renderMaps();
  }

  function listImages(side, label) {
    const { images: ofClass } = choices.find((choice) => choice.label === Number(label));
    side.thumbnails.replaceChildren(...ofClass.map((image) => {
      const content = image.place === undefined ? element("canvas", { "aria-hidden": "true" })
        : element("img", { src: image.picture, alt: "" });
      if (image.place === undefined) {
        const mean = { image, capsule: image.label };
        draw(content, mean, poseOf(mean));
      }
      const name = fullNameOf(image);
      const button = element("button", {
        type: "button", "aria-label": name, title: name, class: image.predicted === image.label ? "" : "wrong",
        onclick: () => choose(side, image),
      }, content);
      button.image = image;
      return button;
    }));
    return ofClass.filter(({ place }) => place !== undefined);
  }

  function chooser(letter, label) {
    const side = sides[letter];
    side.thumbnails = element("div", { class: "thumbnails", role: "group", "aria-label": `Images for ${letter}` });
    side.photo = element("img", { alt: "" });
    side.own = canvas(`Picture drawn from the pose of ${letter}`);
    const photo = figure(side.photo, "");
    side.caption = photo.lastChild;
    const pickers = [choice("Class", classOptions, label, (other) => choose(side, listImages(side, other)[0]))];
    if (movable) {
      side.capsules = choice("Capsule", classOptions, label, (other) => choose(side, side.image, Number(other)));
      pickers.push(side.capsules);
    }
    return element("fieldset", {}, element("legend", {}, `Image ${letter}`), ...pickers, side.thumbnails,
      element("div", { class: "pictures" }, photo, ...(movable ? [figure(side.own, "drawn from its pose")] : [])));
  }

  // ---- The sliders ----

  const FIRST = 5; // the others are folded away
  const sliders = element("div", {});
  const live = canvas("Picture drawn from the moved pose", "live");
  const change = element("output", { class: "change" });
  let resets = [], waiting = 0;

  function slider(e, strongest, [mean, deviation, effect]) {
    const own = (A.pose[e] - mean[e]) / deviation[e];
    const output = element("output", {});
    const input = element("input", {
      type: "range", id: `element-${e}`, step: 0.1,
      min: Math.min(-3, Math.floor(own)), max: Math.max(3, Math.ceil(own)),
      oninput: () => {
        const z = Number(input.value);
        set(z);
        A.pose[e] = mean[e] + z * deviation[e];
        renderMoved();
      },
      onchange: sayChange,
    });
    const set = (z) => {
      input.value = z;
      output.textContent = signed(z);
      input.setAttribute("aria-valuetext",
        `${signed(z).replace("σ", "standard deviations")} from the mean of class ${classes[A.capsule]}`);
    };
    set(own);
    resets.push(() => set(own));
    const title = `from −3 σ to +3 σ a pixel changes by ${(255 * effect[e]).toFixed(1)} of 255`;
    const bar = element("span", { class: "effect", title });
    bar.style.setProperty("--share", effect[e] / strongest);
    return element("div", { class: "element" }, element("label", { for: input.id }, `Element ${e}`), bar, input, output);
  }

  function buildSliders() {
    const ofClass = [means, deviations, effects].map((all) => row(all, shown.indexOf(A.capsule)));
    const [, , effect] = ofClass;
    const order = [...effect.keys()].sort((a, b) => effect[b] - effect[a]);
    resets = [];
    const rows = order.map((e) => slider(e, effect[order[0]], ofClass));
    const rest = rows.splice(FIRST);
    const folded = element("details", {}, element("summary", {}, `${rest.length} elements that change less`),
      element("div", { class: "sliders two" }, ...rest));
    sliders.replaceChildren(element("div", { class: "sliders" }, ...rows), ...(rest.length ? [folded] : []));
    change.textContent = "";
    draw(live, A, A.pose);
  }

  function reset() {
    for (const back of resets) back();
    A.pose = poseOf(A);
  }

  /** How far the picture is from that of the unmoved pose, once a slider has come to rest. */
  function sayChange() {
    const [before, now] = [poseOf(A), A.pose].map((pose) => decode(seenBy({ ...A, pose })));
    const mean = before.reduce((sum, value, i) => sum + Math.abs(value - now[i]), 0) / before.length;
    change.textContent = `A pixel has changed by ${(255 * mean).toFixed(1)} of 255 on average.`;
  }

  function renderMoved() {
    draw(live, A, A.pose);
    // At most once for each picture of the screen, however fast a slider moves.
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(renderPath);
  }

  function workbench() {
    const back = element("button", { type: "button", onclick: () => { reset(); renderMoved(); sayChange(); } }, "Reset");
    return element("div", { class: "workbench" }, element("h3", {}, "Move the pose of A"),
      element("div", { class: "stage" }, live, back, change),
      element("div", {}, hint("The elements that change the picture most, strongest first; bars show by how much. "
        + "0 σ is the mean of the class."), sliders));
  }

  // ---- From A to B ----

  const film = Array.from({ length: 9 }, (_, i) => canvas(`${(100 * i) / 8} % of the way from A to B`));
  const between = canvas("Picture drawn between A and B", "live");
  const way = element("input", { type: "range", id: "way", min: 0, max: 100, value: 50, oninput: () => renderPath() });
  const wayText = element("output", {});

  function renderPath() {
    if (!movable) return;
    const [a, b] = [A, B].map(seenBy);
    const paintAt = (target, share) =>
      paint(target, decode(a.map((value, i) => (1 - share) * value + share * b[i])), shape);
    film.forEach((target, i) => paintAt(target, i / (film.length - 1)));
    paintAt(between, way.value / 100);
    wayText.textContent = `${way.value} %`;
    way.setAttribute("aria-valuetext", `${way.value} % of the way from A to B`);
  }

  function path() {
    return element("div", { class: "path" }, element("h3", {}, "From A to B"),
      hint("The straight line between the poses of A, as moved above, and of B. Between two classes, one pose fades "
        + "while the other grows."),
      element("div", { class: "film" }, ...film),
      element("div", { class: "stage" }, between,
        element("label", { for: "way" }, "On the way from A to B"), way, wayText));
  }

  // ---- Couplings ----

  const grid = element("div", { class: "maps" }), legend = hint("");
  const steps = couplings ? new Uint16Array(bytes(couplings.steps).buffer) : null;
  let toClass = ""; // "": each image for its own class

  const target = (side) => (toClass === "" ? side.capsule : Number(toClass));

  /** The coupling at each position, a row of the grid after the other. */
  function mapOf(side, iteration) {
    const { low, high } = couplings;
    const positions = couplings.rows.centres.length * couplings.columns.centres.length;
    const start = (iteration * couplings.images + side.image.index) * positions;
    return Array.from({ length: positions }, (_, p) =>
      low + ((high - low) * steps[(start + p) * shown.length + shown.indexOf(target(side))]) / 65535);
  }

  /** The edges of the cells around `centres`, as shares of `side`. */
  function edges(centres, side) {
    const half = centres.length > 1 ? (centres[1] - centres[0]) / 2 : side / 2;
    return [...centres.map((centre) => centre - half), centres.at(-1) + half].map((edge) => edge / side);
  }

  function overlay(letter, iteration, farthest) {
    const side = sides[letter], values = mapOf(side, iteration);
    const { uniform, iterations, rows: down, columns: across } = couplings, [height, width] = DATA.side;
    const count = across.centres.length;
    const [least, most] = [Math.min(...values), Math.max(...values)], where = values.indexOf(most);
    const range = most - least < 1e-4 ? `${most.toFixed(3)} everywhere` : `${least.toFixed(3)} to ${most.toFixed(3)}`;
    const name = `Iteration ${iterations[iteration]}: ${range}`;
    const photo = element("img", { src: side.image.picture, alt: "" });
    const colours = element("canvas", { width: 280, height: Math.round((280 * height) / width) });
    const field = element("span", { class: "field", hidden: true });
    const stack = element("div", { class: "stack", role: "img", "aria-label":
      `${letter}, ${nameOf(side.image)}, couplings to class ${classes[target(side)]}. ${name}, highest in row `
      + `${Math.floor(where / count) + 1}, column ${(where % count) + 1}` }, photo, colours, field);
    const made = figure(stack, name);
    const context = colours.getContext("2d");
    const [ys, xs] = [edges(down.centres, height).map((y) => y * colours.height),
      edges(across.centres, width).map((x) => x * colours.width)];
    values.forEach((value, p) => {
      const [i, j] = [Math.floor(p / count), p % count], away = (value - uniform) / farthest;
      context.fillStyle = `rgb(${away > 0 ? "255 120 20" : "60 140 255"} / ${0.85 * Math.min(1, Math.abs(away))})`;
      context.fillRect(xs[j], ys[i], xs[j + 1] - xs[j], ys[i + 1] - ys[i]);
    });
    const nearest = ({ centres }, at) => centres.reduce((best, centre, i) =>
      (Math.abs(centre - at) < Math.abs(centres[best] - at) ? i : best), 0);
    stack.addEventListener("pointermove", (event) => {
      const frame = stack.getBoundingClientRect();
      const i = nearest(down, ((event.clientY - frame.top) / frame.height) * height);
      const j = nearest(across, ((event.clientX - frame.left) / frame.width) * width);
      made.lastChild.textContent = `Row ${i + 1}, column ${j + 1}: ${values[i * count + j].toFixed(3)}`;
      if (down.extent === null || across.extent === null) return;
      field.hidden = false;
      const place = (edge, length, { centres, extent }, full, index) => {
        field.style[edge] = `${(100 * (centres[index] - extent / 2)) / full}%`;
        field.style[length] = `${(100 * extent) / full}%`;
      };
      place("top", "height", down, height, i);
      place("left", "width", across, width, j);
    });
    stack.addEventListener("pointerleave", () => { field.hidden = true; made.lastChild.textContent = name; });
    return made;
  }

  function renderMaps() {
    if (!couplings) return;
    const all = Object.entries(sides);
    const has = ({ image }) => image.place !== undefined && image.index < couplings.images;
    const every = all.filter(([, side]) => has(side))
      .flatMap(([, side]) => couplings.iterations.flatMap((_, r) => mapOf(side, r)));
    const farthest = Math.max(1e-6, ...every.map((value) => Math.abs(value - couplings.uniform)));
    grid.replaceChildren(...all.map(([letter, side]) => element("div", { class: "of-image" },
      element("h4", {}, `${letter}: ${nameOf(side.image)}, votes for class ${classes[target(side)]}`),
      ...(has(side) ? couplings.iterations.map((_, r) => overlay(letter, r, farthest))
        : [hint(side.image.place === undefined ? "A mean pose has no couplings: choose an image."
          : "The couplings of this image are not in this page.")]))));
    const { extent } = couplings.rows, width = couplings.columns.extent;
    const sees = extent === null || width === null ? ""
      : ` A capsule sees ${extent}×${width} pixels; its square is in their middle.`;
    const fraction = couplings.uniform.toFixed(3);
    legend.textContent = `Orange: the capsules here send more than an equal share (${fraction}) of their vote to the `
      + `class. Blue: less. The colours end at ±${farthest.toFixed(3)}.${sees}`;
  }

  function maps() {
    const pickers = [choice("Votes for", [["", "each image's own class"], ...classOptions], "",
      (value) => { toClass = value; renderMaps(); })];
    return element("div", { class: "couplings" }, element("h3", {}, "Where the votes come from"),
      hint(`Which positions of the layer “${couplings.layer}” vote for a class, after each routing iteration: the mean `
        + "coupling of the capsules there."),
      element("div", { class: "pickers" }, ...pickers), legend, grid);
  }

  // ---- All of it ----

  const [first, second = first] = opened.map(({ label }) => label);
  fill(tool, element("div", { class: "choosers" }, chooser("A", first), chooser("B", second)),
    ...(movable ? [workbench(), path()] : []), ...(couplings ? [maps()] : []));
  const others = listImages(B, second);
  choose(B, others[first === second && others.length > 1 ? 1 : 0]);
  choose(A, listImages(A, first)[0]);
})();
