// The reverse process as a picture: a shelf with gaps, and what comes back into it step by step.
import { count, tags } from "./dom.js";
import { add, change, state } from "./store.js";

const { article, button, circle, div, h2, input, label, li, ol, p, span, svg } = tags;

export const STEPS = 6;
const PACE = 900; // milliseconds from one step to the next
let playing = 0;

export function play() {
  clearTimeout(playing);
  const last = (state.answers.steps?.data?.steps.length ?? 1) - 1;
  if (state.view !== "steps" || state.step >= last) return void (playing = 0);
  playing = setTimeout(() => {
    state.step += 1;
    change({});
    play();
  }, PACE);
}
const stop = () => {
  clearTimeout(playing);
  playing = 0;
};
export const begin = () => {
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  stop();
  change({ step: still ? Infinity : 0 });
  if (!still) play();
};

// One dot per item: filled for what is on the shelf, coloured for what came back, ringed for what has just come.
function dots(items, before) {
  return svg({ class: "dots", viewBox: `0 0 ${items.length * 10} 10`, style: { "--n": items.length }, "aria-hidden": "true" },
    items.map(({ item, known }, place) => circle({ key: item, class: known ? "known" : before.has(item) ? "back" : "new", cx: place * 10 + 5, cy: 5, r: 3.4 })));
}

export function steps() {
  const { data, error } = state.answers.steps ?? {}, all = data?.steps ?? [];
  const at = Math.min(state.step, all.length - 1), going = playing !== 0;
  return article(
    { class: "steps", "aria-labelledby": "steps-title" },
    h2({ id: "steps-title" }, "How it comes about"),
    p({ class: "lead" }, state.shelf.length
      ? "The model learned by rubbing out things on people’s shelves and putting them back. So it takes your shelf for what is left of a fuller one, and brings back the likeliest missing things, a few at a time."
      : "Put something on the shelf first: then its gaps fill here, step by step."),
    error && p({ class: "error", role: "alert" }, error),
    all.length > 0 && div(
      { class: "player" },
      button({ class: "plain", onClick: () => { if (going) { stop(); change({}); } else { if (at >= all.length - 1) state.step = 0; play(); change({}); } } }, going ? "Pause" : at >= all.length - 1 ? "Play again" : "Play"),
      label(null, span({ class: "hidden" }, "Step"), input({ type: "range", min: 0, max: all.length - 1, step: 1, value: at, "aria-valuetext": `step ${at} of ${all.length - 1}`, style: { "--from": "0%", "--to": `${(100 * at) / Math.max(1, all.length - 1)}%` }, onInput: (event) => { stop(); change({ step: Number(event.target.value) }); } })),
      span({ class: "note" }, `step ${at} of ${all.length - 1}`),
    ),
    ol({ class: "stages" }, all.slice(0, at + 1).map((stage, n) => {
      const before = new Set((all[n - 1]?.items ?? stage.items).map(({ item }) => item)), fresh = stage.items.filter(({ item }) => !before.has(item));
      return li(
        { key: n, class: n === at ? "last" : "" },
        p({ class: "when" }, n ? `Step ${n}` : "Your shelf", span(null, `${Math.round(100 * stage.share)} % of a taste`)),
        div(null, dots(stage.items, before),
          n ? p({ class: "fresh" }, span({ class: "hidden" }, "Came back: "), fresh.length ? fresh.map((one) => button({ key: one.item, class: "chip", "aria-label": `Put ${one.name} on the shelf`, onClick: () => add(one.item, one.name) }, span({ class: "sign" }, "+"), one.name)) : "nothing new")
            : p({ class: "note" }, count(stage.items.length, "thing") + ", taken as all that is left")),
      );
    })),
    all.length > 0 && p({ class: "key note" }, span({ class: "dot known" }), "on your shelf ", span({ class: "dot new" }), "just came back ", span({ class: "dot back" }), "came back before"),
  );
}
