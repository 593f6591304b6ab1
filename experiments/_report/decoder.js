"use strict";
// A decoder of dense layers, with weights in 16 bits.

/** The bytes that base64 stands for. */
function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function floats(text) {
  return new Float32Array(bytes(text).buffer);
}

/** 16-bit floats (IEEE 754) as 32-bit ones. */
function halves(text) {
  const values = Float32Array.from({ length: 1 << 16 }, (_, bits) => {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
    return bits & 0x8000 ? -size : size;
  });
  return Float32Array.from(new Uint16Array(bytes(text).buffer), (half) => values[half]);
}

/** From a list of {kernel, bias} to a function from poses to pixels. */
function makeDecoder(layers) {
  const ready = layers.map(({ kernel, bias }) => ({ kernel: halves(kernel), bias: floats(bias) }));
  return (poses) => ready.reduce((x, { kernel, bias }, depth) => {
    const sums = Float32Array.from(bias), size = sums.length;
    x.forEach((value, i) => {
      if (value === 0) return; // the poses of other classes, and units that are off
      for (let j = 0, k = i * size; j < size; j++, k++) sums[j] += value * kernel[k];
    });
    const last = depth === ready.length - 1;
    return sums.map((sum) => (last ? 1 / (1 + Math.exp(-sum)) : Math.max(sum, 0)));
  }, poses);
}

/** Draws pixels in [0, 1] of shape [h, w, c]: grey, colour, or channels side by side. */
function paint(canvas, pixels, [height, width, channels]) {
  const colour = channels === 3;
  canvas.width = colour ? width : width * channels;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true }); // in memory, not on a GPU
  const image = context.createImageData(canvas.width, height);
  image.data.forEach((_, at) => {
    const k = at % 4, column = (at >> 2) % canvas.width, row = Math.floor((at >> 2) / canvas.width);
    const channel = colour ? k : Math.floor(column / width);
    const value = pixels[(row * width + (column % width)) * channels + channel];
    image.data[at] = k === 3 ? 255 : Math.round(255 * value);
  });
  context.putImageData(image, 0, 0);
}
