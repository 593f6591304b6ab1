"use strict";
// What the page's other scripts share.

const DATA = JSON.parse(document.getElementById("data").textContent);

/** An element; attributes that begin with "on" are listeners, children are elements or text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** A labelled choice among [value, text] pairs. */
function choice(label, options, chosen, change) {
  const select = element("select", { onchange: () => change(select.value) });
  for (const [value, text] of options) {
    select.append(element("option", { value, selected: String(value) === String(chosen) }, text));
  }
  const made = element("label", { class: "choice" }, label, " ", select);
  made.set = (value) => { select.value = value; };
  return made;
}

/** Empties `parent` and puts `children` into it. */
function fill(parent, ...children) {
  parent.replaceChildren(...children);
  parent.hidden = false;
}
