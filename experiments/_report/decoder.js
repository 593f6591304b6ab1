"use strict";
// A decoder of dense layers, with weights in 16 bits.

/** The bytes that base64 stands for. */
function bytes(text) {
  const characters = atob(text);
  const found = new Uint8Array(characters.length);
  for (let i = 0; i < found.length; i++) found[i] = characters.charCodeAt(i);
  return found;
}

function floats(text) {
  return new Float32Array(bytes(text).buffer);
}

/** 16-bit floats (IEEE 754) as 32-bit ones. */
function halves(text) {
  const bits = new Uint16Array(bytes(text).buffer);
  const values = new Float32Array(1 << 16);
  for (let i = 0; i < values.length; i++) {
    const exponent = (i >> 10) & 31, fraction = i & 1023;
    const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
    values[i] = i & 0x8000 ? -size : size;
  }
  return Float32Array.from(bits, (half) => values[half]);
}

const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
};

/** From a list of {kernel, bias, activation} to a function from poses to pixels. */
function makeDecoder(layers) {
  const ready = layers.map(({ kernel, bias, activation }) => ({
    kernel: halves(kernel), bias: floats(bias), activation: ACTIVATIONS[activation],
  }));
  return (poses) => {
    let x = poses;
    for (const { kernel, bias, activation } of ready) {
      const sums = Float32Array.from(bias), size = sums.length;
      for (let i = 0; i < x.length; i++) {
        const value = x[i];
        if (value === 0) continue; // the poses of other classes, and units that are off
        for (let j = 0, k = i * size; j < size; j++, k++) sums[j] += value * kernel[k];
      }
      x = sums.map(activation);
    }
    return x;
  };
}

/** Draws pixels in [0, 1] of shape [h, w, c]: grey, colour, or channels side by side. */
function paint(canvas, pixels, [height, width, channels]) {
  const colour = channels === 3;
  canvas.width = colour ? width : width * channels;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true }); // in memory, not on a GPU
  const image = context.createImageData(canvas.width, height);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < canvas.width; column++) {
      const channel = colour ? 0 : Math.floor(column / width);
      const from = (row * width + (column % width)) * channels + channel;
      const to = 4 * (row * canvas.width + column);
      for (let k = 0; k < 3; k++) image.data[to + k] = Math.round(255 * pixels[from + (colour ? k : 0)]);
      image.data[to + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}
