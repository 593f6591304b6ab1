"use strict";
// A class capsule's pose in hand: sliders for its elements, the path to another pose, couplings.

(() => {
  const tool = document.getElementById("tool");
  if (!tool) return;
  const { classes, images, couplings, size, shape, seen, samples, typical } = DATA;
  const movable = DATA.poses !== undefined;
  const exact = movable && DATA.decoder !== null;
  const decode = exact ? makeDecoder(DATA.decoder) : null;
  const named = (label) => classes[label];
  const signed = (z) => `${z < -0.05 ? "−" : z > 0.05 ? "+" : ""}${Math.abs(z).toFixed(1)} σ`;
  const sheetOf = new Map((samples?.sheets ?? []).map((sheet) => [sheet.place, sheet]));

  // What can be chosen: of each class its mean pose, where the decoder is here, and its images.
  const table = (text) => (text ? floats(text) : null);
  const [poses, means, deviations, effects] =
    [DATA.poses, DATA.means, DATA.deviations, DATA.effects].map(table);
  const rows = (all, i, length) => all.subarray(i * length, (i + 1) * length);
  const all = images.map((image, index) => ({ ...image, index }))
    .filter(({ place }) => !samples || sheetOf.has(place));
  if (movable) for (const image of all) image.poses = rows(poses, image.index, seen.length * size);
  if (exact) {
    const ofClasses = floats(typical);
    DATA.shown.forEach((label, k) => all.push(
      { label, predicted: label, poses: rows(ofClasses, k, seen.length * size) }));
  }
  const labels = DATA.shown.filter((label) => all.some((one) => one.label === label));
  const ofClass = (label) => all.filter((one) => one.label === label)
    .sort((a, b) => (a.place === undefined ? -1 : 0) - (b.place === undefined ? -1 : 0));
  const nameOf = (one) => (one.place === undefined
    ? `mean pose of class ${named(one.label)}` : `image ${one.place} of class ${named(one.label)}`);

  /** The pose of one class capsule of an image, a copy. */
  function poseOf(one, capsule) {
    return Float32Array.from(rows(one.poses, seen.indexOf(capsule), size));
  }

  /** What the decoder sees: the other classes' poses are zero where it is conditional. */
  function seenBy({ one, capsule, pose }) {
    const x = DATA.conditional ? new Float32Array(seen.length * size) : Float32Array.from(one.poses);
    x.set(pose, seen.indexOf(capsule) * size);
    return x;
  }

  function canvas(name, kind = "") {
    const made = element("canvas", { role: "img", "aria-label": name, class: kind });
    if (shape) [made.height, made.width] = shape;
    return made;
  }

  const onScreen = (content, ...caption) =>
    element("figure", {}, content, element("figcaption", {}, ...caption));

  // ---- The two images ----

  const sides = { A: {}, B: {} };

  function choose(side, one) {
    side.one = one;
    side.capsule = DATA.shown.includes(one.predicted) ? one.predicted : one.label;
    if (samples) side.capsule = sheetOf.get(one.place).label;
    side.capsules?.set(side.capsule);
    startAgain(side);
  }

  function startAgain(side) {
    if (movable) side.pose = poseOf(side.one, side.capsule);
    side.moved = null; // of the pictures made in advance: [element, column]
    for (const button of side.thumbnails.children) {
      button.setAttribute("aria-pressed", String(button.one === side.one));
    }
    if (side === sides.A) {
      buildSliders();
      capsule = side.capsule; // of the maps
      mapped?.set(capsule);
    }
    render();
  }

  function listImages(side, label) {
    side.thumbnails.replaceChildren(...ofClass(Number(label)).map((one) => {
      const content = one.place === undefined ? canvas("") : element("img", { src: one.picture, alt: "" });
      if (one.place === undefined) {
        const capsule = one.label;
        paint(content, decode(seenBy({ one, capsule, pose: poseOf(one, capsule) })), shape);
        content.removeAttribute("role");
        content.setAttribute("aria-hidden", "true");
        content.removeAttribute("aria-label");
      }
      const wrong = one.predicted === one.label ? "" : `, taken for ${named(one.predicted)}`;
      const name = nameOf(one) + wrong;
      const button = element("button", {
        type: "button", "aria-label": name, title: name, class: wrong ? "wrong" : "",
        onclick: () => choose(side, one),
      }, content);
      button.one = one;
      return button;
    }));
  }

  function chooser(letter) {
    const side = sides[letter];
    side.thumbnails = element("div", { class: "thumbnails", role: "group", "aria-label": `Images for ${letter}` });
    const first = labels[letter === "A" || labels.length === 1 ? 0 : 1];
    const pick = choice("Class", labels.map((label) => [label, named(label)]), first, (label) => {
      listImages(side, label);
      choose(side, ofClass(Number(label)).find((one) => one.place !== undefined));
    });
    if (movable && !samples) {
      side.capsules = choice("Capsule", DATA.shown.map((label) => [label, named(label)]), first, (label) => {
        side.capsule = Number(label);
        startAgain(side);
      });
    }
    side.image = element("img", { alt: "" });
    side.own = canvas(`Picture drawn from the pose of ${letter}`);
    side.caption = element("figcaption", {});
    const drawn = movable ? [onScreen(side.own, "from its pose")] : [];
    return element("fieldset", {}, element("legend", {}, `Image ${letter}`), pick, side.capsules ?? "", side.thumbnails,
      element("div", { class: "pictures" }, element("figure", {}, side.image, side.caption), ...drawn));
  }

  function renderSide(side) {
    const { one } = side;
    const wrong = one.predicted === one.label ? "" : `, taken for ${named(one.predicted)}`;
    side.image.hidden = one.place === undefined;
    if (one.place !== undefined) side.image.src = one.picture;
    side.image.alt = nameOf(one);
    side.caption.textContent = nameOf(one) + wrong;
    if (movable) drawSide(side.own, side, poseOf(one, side.capsule), null);
  }

  /** Draws a pose, from the decoder or, as [element, column], from the pictures made in advance. */
  function drawSide(target, side, pose, moved) {
    if (exact) {
      paint(target, decode(seenBy({ ...side, pose })), shape);
      return;
    }
    const { sheet } = sheetOf.get(side.one.place);
    const width = sheet.naturalWidth / samples.values.length, height = sheet.naturalHeight / (size + 1);
    const [row, column] = moved ?? [size, 0];
    target.width = width;
    target.height = height;
    target.getContext("2d").drawImage(sheet, column * width, row * height, width, height, 0, 0, width, height);
  }

  // ---- The sliders ----

  const sliders = element("div", { class: "sliders" });
  const live = canvas("Picture drawn from the moved pose", "live");
  const change = element("output", { class: "change" });
  let inputs = [], waiting = 0;

  function buildSliders() {
    if (!movable) return;
    const { A } = sides, k = DATA.shown.indexOf(A.capsule);
    const [mean, deviation, effect] = [means, deviations, effects].map((of) => rows(of, k, size));
    const order = [...effect.keys()].sort((a, b) => effect[b] - effect[a]);
    inputs = order.map((e) => {
      const own = (A.pose[e] - mean[e]) / deviation[e];
      const output = element("output", {}, signed(own));
      const tell = () => input.setAttribute("aria-valuetext",
        `${signed(Number(input.value)).replace("σ", "standard deviations")} from the mean of class ${named(A.capsule)}`);
      const input = element("input", {
        type: "range", id: `element-${e}`, step: samples ? 1 : 0.1,
        min: samples ? samples.values[0] : Math.min(-3, Math.floor(own)),
        max: samples ? samples.values.at(-1) : Math.max(3, Math.ceil(own)),
        oninput: () => {
          const z = Number(input.value);
          if (samples) resetSliders();
          input.value = z;
          A.pose[e] = mean[e] + z * deviation[e];
          A.moved = [e, samples ? samples.values.indexOf(z) : 0];
          output.textContent = signed(z);
          tell();
          renderMoved();
        },
        onchange: sayChange,
      });
      input.reset = () => { input.value = own; output.textContent = signed(own); tell(); };
      input.value = own;
      tell();
      const changes = (255 * effect[e]).toFixed(1);
      const bar = element("span", { class: "effect", title: `from −1 σ to +1 σ a pixel changes by ${changes} of 255` });
      bar.style.setProperty("--share", effect[e] / effect[order[0]]);
      return { input, row: element("div", { class: "element" },
        element("label", { for: input.id }, `Element ${e}`), bar, input, output) };
    });
    sliders.replaceChildren(...inputs.map(({ row }) => row));
  }

  function resetSliders() {
    for (const { input } of inputs) input.reset();
    sides.A.pose = poseOf(sides.A.one, sides.A.capsule);
    sides.A.moved = null;
  }

  /** How far the picture is from that of the unmoved pose, once a slider has come to rest. */
  function sayChange() {
    if (!exact) return;
    const { A } = sides;
    const [before, now] = [poseOf(A.one, A.capsule), A.pose].map((pose) => decode(seenBy({ ...A, pose })));
    const mean = before.reduce((sum, value, i) => sum + Math.abs(value - now[i]), 0) / before.length;
    change.textContent = `A pixel has changed by ${(255 * mean).toFixed(1)} of 255 on average.`;
  }

  function renderMoved() {
    const { A } = sides;
    drawSide(live, A, A.pose, A.moved);
    // At most once for each picture of the screen, however fast a slider moves.
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(renderPath);
  }

  function workbench() {
    const reset = element("button", {
      type: "button", onclick: () => { resetSliders(); renderMoved(); sayChange(); },
    }, "Reset");
    return element("div", { class: "workbench" },
      element("h3", {}, "Move the pose of A"),
      element("div", { class: "stage" }, live, reset, change),
      element("div", {}, element("p", { class: "hint" },
        "The elements that change the picture most come first; the bar is by how much. 0 σ is the "
        + "mean of the class."), sliders));
  }

  // ---- From A to B ----

  const STEPS = 9;
  const film = Array.from({ length: STEPS }, (_, i) => canvas(`${Math.round((100 * i) / (STEPS - 1))} % of the way from A to B`));
  const between = canvas("Picture drawn between A and B", "live");
  const way = element("input", {
    type: "range", id: "way", min: 0, max: 100, value: 50, oninput: () => renderPath(),
  });
  const wayText = element("output", {}, "50 %");

  function at(share) {
    const [a, b] = [sides.A, sides.B].map(seenBy);
    return decode(a.map((value, i) => (1 - share) * value + share * b[i]));
  }

  function renderPath() {
    if (!exact) return;
    film.forEach((target, i) => paint(target, at(i / (STEPS - 1)), shape));
    paint(between, at(way.value / 100), shape);
    wayText.textContent = `${way.value} %`;
    way.setAttribute("aria-valuetext", `${way.value} % of the way from A to B`);
  }

  function path() {
    return element("div", { class: "path" },
      element("h3", {}, "From A to B"),
      element("p", { class: "hint" }, "The straight line between the poses of A, as moved above, and of B. "
        + "Where they are of two classes, one pose fades while the other grows."),
      element("div", { class: "film" }, ...film),
      element("div", { class: "stage" }, between,
        element("label", { for: "way" }, "On the way from A to B"), way, wayText));
  }

  // ---- Couplings ----

  const grid = element("div", { class: "maps" });
  const legend = element("p", { class: "hint" });
  let capsule = labels[0], measure = "means", mapped = null;
  const steps = {};

  /** The coupling at each position, a row of the grid after the other. */
  function mapOf(one, iteration) {
    const { low, high } = couplings[measure];
    steps[measure] ??= bytes(couplings[measure].steps);
    const positions = couplings.rows.centres.length * couplings.columns.centres.length;
    const num = DATA.shown.length, k = DATA.shown.indexOf(capsule);
    const start = (iteration * couplings.images + one.index) * positions;
    return Array.from({ length: positions }, (_, p) =>
      low + ((high - low) * steps[measure][(start + p) * num + k]) / 255);
  }

  /** The edges of the cells around `centres`, as shares of `side`. */
  function edges(centres, side) {
    const half = centres.length > 1 ? (centres[1] - centres[0]) / 2 : side / 2;
    return [...centres.map((centre) => centre - half), centres.at(-1) + half].map((edge) => edge / side);
  }

  function overlay(side, letter, iteration, farthest) {
    const values = mapOf(side.one, iteration), { uniform, iterations } = couplings;
    const photo = element("img", { src: side.one.picture, alt: "" });
    const target = element("canvas", { width: 280, height: 280 });
    const box = element("span", { class: "field", hidden: true });
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const across = couplings.columns.centres.length;
    const where = values.indexOf(most);
    const range = most - least < 1e-4 ? `${most.toFixed(3)} everywhere` : `${least.toFixed(3)} to ${most.toFixed(3)}`;
    const name = `Iteration ${iterations[iteration]}: ${range}`;
    const caption = element("figcaption", {}, name);
    const stack = element("div", { class: "stack", role: "img", "aria-label":
      `${letter}, ${nameOf(side.one)}, couplings to class ${named(capsule)}. ${name}, highest in row `
      + `${Math.floor(where / across) + 1}, column ${(where % across) + 1}` }, photo, target, box);
    photo.decode().then(() => {
      target.height = Math.round((280 * photo.naturalHeight) / photo.naturalWidth);
      const context = target.getContext("2d");
      const [height, width] = DATA.side;
      const [ys, xs] = [edges(couplings.rows.centres, height), edges(couplings.columns.centres, width)];
      values.forEach((value, p) => {
        const row = Math.floor(p / across), column = p % across;
        const away = (value - uniform) / farthest;
        context.fillStyle = `rgb(${away > 0 ? "255 120 20" : "60 140 255"} / ${0.85 * Math.min(1, Math.abs(away))})`;
        const [left, top] = [xs[column] * target.width, ys[row] * target.height];
        context.fillRect(left, top, xs[column + 1] * target.width - left, ys[row + 1] * target.height - top);
      });
      stack.addEventListener("pointermove", (event) => {
        const frame = stack.getBoundingClientRect();
        const nearest = (centres, side, at) => centres.reduce((best, centre, i) =>
          Math.abs(centre / side - at) < Math.abs(centres[best] / side - at) ? i : best, 0);
        const row = nearest(couplings.rows.centres, height, (event.clientY - frame.top) / frame.height);
        const column = nearest(couplings.columns.centres, width, (event.clientX - frame.left) / frame.width);
        caption.textContent = `Row ${row + 1}, column ${column + 1}: ${values[row * across + column].toFixed(3)}`;
        if (couplings.rows.extent === null || couplings.columns.extent === null) return;
        box.hidden = false;
        for (const [edge, axis, full, index] of [["top", "rows", height, row], ["left", "columns", width, column]]) {
          const { centres, extent } = couplings[axis];
          box.style[edge] = `${(100 * (centres[index] - extent / 2)) / full}%`;
          box.style[edge === "top" ? "height" : "width"] = `${(100 * extent) / full}%`;
        }
      });
      stack.addEventListener("pointerleave", () => { box.hidden = true; caption.textContent = name; });
    });
    return element("figure", {}, stack, caption);
  }

  function renderMaps() {
    if (!couplings) return;
    const drawn = Object.entries(sides).filter(([, side]) =>
      side.one.place !== undefined && side.one.index < couplings.images);
    const every = drawn.flatMap(([, side]) => couplings.iterations.flatMap((_, r) => mapOf(side.one, r)));
    const farthest = Math.max(1e-6, ...every.map((value) => Math.abs(value - couplings.uniform)));
    grid.replaceChildren(...Object.entries(sides).map(([letter, side]) => {
      const has = drawn.some(([, other]) => other === side);
      const why = side.one.place === undefined ? "A mean pose has no couplings: choose an image."
        : "The couplings of this image are not in this page.";
      return element("div", { class: "of-image" }, element("h4", {}, `${letter}: ${nameOf(side.one)}`),
        ...(has ? couplings.iterations.map((_, r) => overlay(side, letter, r, farthest)) : [element("p", { class: "hint" }, why)]));
    }));
    const { extent } = couplings.rows, width = couplings.columns.extent;
    const sees = extent === null || width === null ? "" : ` A capsule sees ${extent}×${width} pixels: a square is at their middle.`;
    legend.textContent = `Orange squares couple more to class ${named(capsule)} than an equal share for each class, `
      + `${couplings.uniform.toFixed(3)}, blue ones less; full colour is ${farthest.toFixed(3)} away.${sees}`;
  }

  function maps() {
    const pickers = [choice("Class capsule", DATA.shown.map((label) => [label, named(label)]), capsule,
      (label) => { capsule = Number(label); renderMaps(); })];
    [mapped] = pickers;
    if (couplings.weighted) {
      pickers.push(choice("Capsules of a position", [["means", "count the same"], ["weighted", "count by their length"]],
        measure, (value) => { measure = value; renderMaps(); }));
    }
    return element("div", { class: "couplings" },
      element("h3", {}, "Where the votes come from"),
      element("p", { class: "hint" }, `How much of its vote each position of the layer “${couplings.layer}” gives to a `
        + "class capsule: the mean coupling of its capsules, with the network run for each number of routing iterations."),
      element("div", { class: "pickers" }, ...pickers), legend, grid);
  }

  // ---- All of it ----

  function render() {
    if (!sides.A.one || !sides.B.one) return;
    Object.values(sides).forEach(renderSide);
    if (movable) drawSide(live, sides.A, sides.A.pose, sides.A.moved);
    renderPath();
    change.textContent = "";
    renderMaps();
  }

  function build() {
    fill(tool, element("div", { class: "choosers" }, chooser("A"), chooser("B")),
      ...(movable ? [workbench()] : []), ...(exact ? [path()] : []), ...(couplings ? [maps()] : []));
    for (const [letter, side] of Object.entries(sides)) {
      const label = labels[letter === "A" || labels.length === 1 ? 0 : 1];
      listImages(side, label);
      const found = ofClass(label).filter((one) => one.place !== undefined);
      choose(side, found[letter === "B" && labels.length === 1 && found.length > 1 ? 1 : 0]);
    }
  }

  Promise.all([...sheetOf.values()].map(async (sheet) => {
    sheet.sheet = element("img", { src: sheet.picture, alt: "" });
    await sheet.sheet.decode();
  })).then(build);
})();
