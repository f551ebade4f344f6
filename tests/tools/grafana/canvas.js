// Remembers what is drawn on a canvas: texts, and the colours of lines. Imported before anything draws.

const CONTEXT = CanvasRenderingContext2D.prototype;
const logs = new WeakMap();

function log(context) {
  const canvas = context.canvas;
  if (!logs.has(canvas)) logs.set(canvas, { texts: [], strokes: [] });
  return logs.get(canvas);
}

for (const [name, note] of [
  ['fillText', (context, text) => log(context).texts.push(String(text))],
  ['stroke', (context, path) => path && log(context).strokes.push(String(context.strokeStyle))],
  // uPlot begins each drawing with this.
  ['clearRect', (context) => logs.delete(context.canvas)],
]) {
  const own = CONTEXT[name];
  CONTEXT[name] = function (...args) {
    note(this, args[0]);
    return own.apply(this, args);
  };
}

export const drawn = (canvas) => logs.get(canvas) ?? { texts: [], strokes: [] };
