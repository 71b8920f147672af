// The reverse process as a picture: the shelf as a row of dots, rubbed out, and what comes back step by step.
import { count, listed, still, tags } from "./dom.js";
import { change, nameOf, state } from "./store.js";
import { chip, heard, plain, track, trouble, view } from "./parts.js";

const { circle, div, input, li, ol, p, span, svg, title } = tags;
const PACE = 1100; // milliseconds from one step to the next
let playing = 0;

const all = () => (state.shelf.length && state.answers.steps?.data?.steps) || [];
export const nSteps = () => Math.max(1, Math.min(6, state.shelf.length - 1));

function play() {
	playing = state.view === "steps" && state.step < all().length
		? setTimeout(() => {
				state.step += 1;
				play();
				change({});
			}, PACE)
		: 0;
}
function to(step) {
	clearTimeout(playing);
	playing = 0;
	change({ step });
}
export function begin() {
	if (still.matches) return to(all().length);
	to(0);
	play();
	change({});
}

// A dot for each thing on the shelf, in its place, and behind them what came that is not on the shelf.
function dots(here, before, ever) {
	const elsewhere = ever.filter(({ in_history: own }) => !own).map(({ item }) => item);
	const places = [...state.shelf, ...elsewhere], gap = elsewhere.length ? 4 : 0;
	return svg({ class: "dots", viewBox: `0 0 ${places.length * 10 + gap} 10`, style: { "--n": places.length }, "aria-hidden": "true" },
		places.map((item, n) => {
			const one = here.get(item), own = n < state.shelf.length, kind = !one ? (own ? "gap" : "none") : one.known ? "known" : own ? "back" : "other";
			return circle({ key: item, class: one && !before.has(item) ? `${kind} new` : kind, cx: n * 10 + 5 + (own ? 0 : gap), cy: 5, r: 3.4 }, title(null, nameOf(item)));
		}));
}

const byItem = (items) => new Map(items.map((one) => [one.item, one]));

function stage(n, states) {
	const items = states[n].items, here = byItem(items), before = n ? byItem(states[n - 1].items) : here;
	const fresh = items.filter(({ item }) => !before.has(item));
	const words = [["Your shelf", "whole"], ["Rubbed out", `${items.length} left`]][n] ?? [`Step ${n - 1}`, `back to ${Math.round(100 * states[n].share)} %`];
	return li({ key: n, class: n === state.step && "last" },
		p({ class: "when" }, words[0], span(null, words[1])),
		div(null, dots(here, before, states.at(-1).items),
			n > 1 && p({ class: "fresh" }, fresh.length ? [heard("Came back: "), fresh.map((one) => (one.in_history ? span({ key: one.item, class: "chip right" }, span({ class: "sign" }, "✓"), one.name) : chip(one)))] : span({ class: "note" }, "nothing yet"))));
}

function verdict(states) {
	const last = states.at(-1).items, right = last.filter(({ known, in_history: own }) => own && !known).length;
	const gone = state.shelf.length - states[1].items.length, other = last.filter(({ in_history: own }) => !own).map(({ name }) => name);
	if (gone < 1) return "One thing cannot be rubbed out: add a few more.";
	return `Of ${count(gone, "thing")} rubbed out, ${right} came back.` + (other.length ? ` Instead of the rest came ${listed(other)}.` : "");
}

export function steps() {
	const { error } = state.answers.steps ?? {}, found = all(), last = found.length;
	const own = state.shelf.map((item) => ({ item, known: true, in_history: true }));
	const states = [{ items: own }, ...found], at = Math.min(state.step, last);
	const lead = state.shelf.length
		? "The model learned by rubbing out shelves and putting things back, the likeliest first. Here it does so with yours: it sees only what is left."
		: "Put a few things on the shelf: here they are rubbed out and come back, step by step.";
	return view("steps", "How it comes about", lead, trouble(error), last > 0 && [
		div({ class: "player" },
			plain(playing ? "Pause" : at < last ? "Play" : "Play again", () => (playing ? to(at) : at < last ? (play(), change({})) : begin())),
			input({ type: "range", min: 0, max: last, step: 1, value: at, "aria-label": "Step", "aria-valuetext": `${at} of ${last}`, style: track(0, at / last), oninput: ({ target }) => to(Number(target.value)) }),
			plain("Rub out again", () => change({ seed: state.seed + 1 }))),
		ol({ class: "stages" }, states.slice(0, at + 1).map((_, n) => stage(n, states))),
		at === last && p({ class: "lead" }, verdict(states)),
		p({ class: "key note" }, [["known", "on your shelf"], ["gap", "rubbed out"], ["back", "came back"], ["other", "came instead"]].map(([kind, words]) =>
			span(null, svg({ viewBox: "0 0 10 10", class: "dot", "aria-hidden": "true" }, circle({ class: kind, cx: 5, cy: 5, r: 3.4 })), words)))]);
}
