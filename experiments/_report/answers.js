"use strict";
// Opens the images of a cell of the confusion matrix; chooses among the mistakes and sorts them.

const cards = [...document.querySelectorAll("#mistakes figure[data-place]")];

function imagesOf(truth, predicted) {
  const images = new Map();
  for (const card of cards) {
    if (card.dataset.true === truth && card.dataset.predicted === predicted) {
      images.set(card.dataset.place, card.querySelector("img").src);
    }
  }
  for (const image of DATA.images) {
    if (String(image.label) === truth && String(image.predicted) === predicted) {
      images.set(String(image.place), image.picture);
    }
  }
  return [...images];
}

function openCell(button, truth, predicted, what) {
  const panel = document.getElementById("cell");
  const count = Number(button.textContent), images = imagesOf(truth, predicted);
  const close = () => {
    panel.hidden = true;
    button.setAttribute("aria-expanded", "false");
    button.focus();
  };
  for (const other of document.querySelectorAll(".confusion button")) {
    other.setAttribute("aria-expanded", String(other === button));
  }
  const shown = images.length === count ? `${count}` : `${images.length} of ${count}`;
  fill(
    panel,
    element("h3", { tabindex: -1 }, `${what}: ${shown} ${count === 1 ? "image" : "images"}`),
    element("div", { class: "cell" }, ...images.map(([place, src]) =>
      element("figure", {}, element("img", { src, alt: `Image ${place}, class ${DATA.classes[truth]}` }),
        element("figcaption", {}, `image ${place}`)))),
    element("button", { type: "button", onclick: close }, "Close"),
  );
  if (!images.length) panel.firstChild.after(element("p", {}, "This page holds none of them."));
  panel.onkeydown = (event) => { if (event.key === "Escape") close(); };
  panel.firstChild.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
}

for (const cell of document.querySelectorAll(".confusion td[data-true]")) {
  const { true: truth, predicted } = cell.dataset;
  const [a, b] = [DATA.classes[truth], DATA.classes[predicted]];
  const what = truth === predicted ? `${a}, classified correctly` : `${a}, taken for ${b}`;
  const count = cell.textContent, name = `${count} of class ${what}: show images`;
  const button = element("button", {
    type: "button", "aria-expanded": "false", "aria-controls": "cell", "aria-label": name, title: name,
    onclick: () => openCell(button, truth, predicted, what),
  }, count);
  cell.replaceChildren(button);
}
document.querySelector("#confusion > p").append(" Choose a number to see its images.");

if (cards.length > 1) {
  const [list] = document.querySelectorAll("#mistakes .mistakes");
  const wanted = { true: "", predicted: "", order: "most" };
  const said = element("output", {});

  function arrange() {
    const fits = cards.filter((card) =>
      ["true", "predicted"].every((key) => !wanted[key] || card.dataset[key] === wanted[key]));
    const sign = wanted.order === "most" ? -1 : 1;
    fits.sort((a, b) => sign * (a.dataset.lead - b.dataset.lead));
    // One list: what was folded away is found too.
    list.replaceChildren(...fits);
    document.getElementById("more")?.remove();
    said.textContent = `${fits.length} of ${cards.length} shown`;
  }

  const options = (key) => {
    const labels = [...new Set(cards.map((card) => card.dataset[key]))].sort((a, b) => a - b);
    return [["", "any"], ...labels.map((label) => [label, DATA.classes[label]])];
  };
  const change = (key) => (value) => { wanted[key] = value; arrange(); };
  fill(
    document.getElementById("filter"),
    choice("Class", options("true"), "", change("true")),
    choice("Taken for", options("predicted"), "", change("predicted")),
    choice("First", [["most", "the surest"], ["least", "the least sure"]], "most", change("order")),
    said,
  );
}
