"use strict";
// Opens the images of a cell of the confusion matrix; chooses among the mistakes and sorts them.

const cards = [...document.querySelectorAll("#mistakes figure[data-place]")];

function imagesOf(truth, predicted) {
  const found = new Map();
  for (const card of cards) {
    if (card.dataset.true === truth && card.dataset.predicted === predicted) {
      found.set(card.dataset.place, card.querySelector("img").src);
    }
  }
  for (const { place, label, predicted: said, picture } of DATA.images) {
    if (String(label) === truth && String(said) === predicted) found.set(String(place), picture);
  }
  return found;
}

function saying(truth, predicted) {
  const [a, b] = [DATA.classes[truth], DATA.classes[predicted]];
  return truth === predicted ? `${a}, classified correctly` : `${a}, taken for ${b}`;
}

function openCell(button, truth, predicted, count) {
  const panel = document.getElementById("cell");
  const what = saying(truth, predicted);
  const images = imagesOf(truth, predicted);
  const close = () => {
    panel.hidden = true;
    button.setAttribute("aria-expanded", "false");
    button.focus();
  };
  for (const other of document.querySelectorAll(".confusion button")) {
    other.setAttribute("aria-expanded", String(other === button));
  }
  const shown = images.size === count ? `${count}` : `${images.size} of ${count}`;
  fill(
    panel,
    element("h3", { tabindex: -1 }, `${what}: ${shown} ${count === 1 ? "image" : "images"}`),
    element("div", { class: "cell" }, ...[...images].map(([place, src]) =>
      element("figure", {}, element("img", { src, alt: `Image ${place}, class ${DATA.classes[truth]}` }),
        element("figcaption", {}, `image ${place}`)))),
    element("button", { type: "button", onclick: close }, "Close"),
  );
  if (images.size === 0) panel.firstChild.after(element("p", {}, "This page holds none of them."));
  panel.onkeydown = (event) => { if (event.key === "Escape") close(); };
  panel.firstChild.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
}

for (const cell of document.querySelectorAll(".confusion td[data-true]")) {
  const { true: truth, predicted } = cell.dataset;
  const count = Number(cell.textContent);
  const button = element("button", {
    type: "button", "aria-expanded": "false", "aria-controls": "cell",
    "aria-label": `${count} of class ${saying(truth, predicted)}: show images`,
    onclick: () => openCell(button, truth, predicted, count),
  }, String(count));
  cell.replaceChildren(button);
}

if (cards.length > 1) {
  const lists = [...document.querySelectorAll("#mistakes .mistakes")];
  const more = document.getElementById("more");
  const wanted = { true: "", predicted: "", order: "most" };
  const said = element("output", {});

  function arrange() {
    const fits = cards.filter((card) =>
      ["true", "predicted"].every((key) => !wanted[key] || card.dataset[key] === wanted[key]));
    const sign = wanted.order === "most" ? -1 : 1;
    fits.sort((a, b) => sign * (a.dataset.lead - b.dataset.lead));
    // One list: what was folded away is found too.
    lists[0].replaceChildren(...fits);
    if (more) more.hidden = true;
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
