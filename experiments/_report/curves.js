"use strict";
// Values under the pointer, or at the step that a slider names.

for (const plot of document.querySelectorAll(".plot")) {
  const { what, lines } = JSON.parse(plot.dataset.plot);
  const steps = [...new Set(lines.flatMap((line) => line.points.map(([step]) => step)))];
  steps.sort((a, b) => a - b);
  const shown = (value) => (what === "accuracy" ? `${(100 * value).toFixed(1)} %` : value.toPrecision(3));
  const spread = (value) => (value === null ? "" : ` ± ${shown(value)}`);

  const rule = element("span", { class: "rule" });
  const dots = lines.map(() => element("span", { class: "dot" }));
  const said = element("output", { class: "values" }, "Point at the plot, or move the slider.");
  const slider = element("input", {
    type: "range", min: 0, max: steps.length - 1, value: steps.length - 1,
    "aria-label": `Step at which to read the ${what}`, oninput: () => read(steps[slider.value]),
  });
  const picture = plot.querySelector("picture");
  picture.append(rule, ...dots);
  rule.hidden = true;
  dots.forEach((dot) => { dot.hidden = true; });
  plot.append(slider, said);
  slider.setAttribute("aria-valuetext", `step ${steps.at(-1)}`);

  function read(step) {
    const parts = lines.map((line, i) => {
      const nearest = line.points.reduce((best, point) =>
        Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best);
      const [at, value, x, y, deviation] = nearest;
      dots[i].hidden = false;
      dots[i].style.left = `${100 * x}%`;
      dots[i].style.top = `${100 * y}%`;
      if (i === 0 || at === step) rule.style.left = `${100 * x}%`;
      const where = at === step ? "" : ` (step ${at.toLocaleString("en")})`;
      return `${line.name} ${shown(value)}${spread(deviation)}${where}`;
    });
    rule.hidden = false;
    const text = `step ${step.toLocaleString("en")}: ${parts.join(", ")}`;
    slider.setAttribute("aria-valuetext", text);
    said.textContent = text;
  }

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width;
    const points = lines.flatMap((line) => line.points);
    const nearest = points.reduce((best, point) =>
      Math.abs(point[2] - x) < Math.abs(best[2] - x) ? point : best);
    slider.value = steps.indexOf(nearest[0]);
    read(nearest[0]);
  });
}
