// The reverse process as a picture: items are removed from the history, and the model restores them step by step.
import { count, listed, still, tags } from "./dom.js";
import { change, nameOf, state } from "./store.js";
import { addChip, alertBox, screenReaderOnly, textButton, track, view } from "./parts.js";

const { circle, div, input, li, ol, p, span, svg, title } = tags;
const PACE = 1100; // milliseconds from one step to the next
let playing = 0;

const ACROSS = 40, CHIPS = 12; // dots in a row, and restored items that a step names
const sameHistory = () => state.answers.steps?.sent?.history.join("\n") === state.history.join("\n");
const answered = () => (state.history.length && sameHistory() && state.answers.steps.data.steps) || [];
const known = () => state.history.filter((item) => !state.answers.steps.data.unknown.includes(item));
export const nSteps = () => Math.max(1, Math.min(6, state.history.length - 1));

const isShown = () => state.view === "steps" || (state.view === "map" && state.thinning);
function play() {
	playing = isShown() && state.step < answered().length
		? setTimeout(() => {
				state.step += 1;
				play();
				change({});
			}, PACE)
		: 0;
}
function showStep(step) {
	clearTimeout(playing);
	playing = 0;
	change({ step });
}
export function begin() {
	if (still.matches) return showStep(answered().length);
	showStep(0);
	play();
	change({});
}

// A dot for each item of the history that the model knows, and behind them the items that the model added instead.
function dots(here, before, final) {
	const added = final.filter(({ in_history }) => !in_history).map(({ item }) => item), mine = known();
	const places = [...mine, ...added], across = Math.min(places.length, ACROSS), gap = added.length && places.length <= ACROSS ? 4 : 0;
	return svg({ class: "dots", viewBox: `0 0 ${across * 10 + gap} ${10 * Math.ceil(places.length / ACROSS)}`, style: { "--n": across }, "aria-hidden": "true" },
		places.map((item, n) => {
			const one = here.get(item), inHistory = n < mine.length, kind = !one ? (inHistory ? "gap" : "none") : one.known ? "known" : inHistory ? "back" : "other";
			return circle({ key: item, class: one && !before.has(item) ? `${kind} new` : kind, cx: (n % ACROSS) * 10 + 5 + (inHistory ? 0 : gap), cy: 10 * Math.floor(n / ACROSS) + 5, r: 3.4 }, title(null, nameOf(item)));
		}));
}

const byItem = (items) => new Map(items.map((one) => [one.item, one]));

function stage(n, states) {
	const items = states[n].items, here = byItem(items), before = n ? byItem(states[n - 1].items) : here;
	const restored = items.filter(({ item }) => !before.has(item));
	const words = [["Your history", "complete"], ["Removed", `${items.length} left`]][n] ?? [`Step ${n - 1}`, `restored to ${Math.round(100 * states[n].share)} %`];
	return li({ key: n, class: n === state.step && "last" },
		p({ class: "when" }, words[0], span(null, words[1])),
		div(null, dots(here, before, states.at(-1).items),
			n > 1 && p({ class: "fresh" }, restored.length ? [screenReaderOnly("Restored: "), restored.slice(0, CHIPS).map((one) => (one.in_history ? span({ key: one.item, class: "chip right" }, span({ class: "sign" }, "✓"), span({ dir: "auto" }, one.name)) : addChip(one))), restored.length > CHIPS && span({ class: "note" }, `and ${restored.length - CHIPS} more`)] : span({ class: "note" }, "nothing yet"))));
}

const ALONE = "A single item cannot be removed: add a few more.";
export function summary(states) {
	const last = states.at(-1).items, restored = last.filter(({ known, in_history }) => in_history && !known).length;
	const removed = known().length - states[1].items.length, others = last.filter(({ in_history }) => !in_history).map(({ name }) => name);
	if (removed < 1) return ALONE;
	return `${restored} of ${count(removed, "removed item")} restored.` + (others.length ? ` Added instead: ${listed(others.length > CHIPS ? [...others.slice(0, CHIPS), `${others.length - CHIPS} more`] : others)}.` : "");
}

// The history and the states after it: [] before the answer.
export function stages() {
	const all = answered();
	return all.length ? [{ items: known().map((item) => ({ item, known: true, in_history: true })) }, ...all] : [];
}

export function player(last) {
	const at = Math.min(state.step, last);
	return div({ class: "player" },
		textButton(playing ? "Pause" : at < last ? "Play" : "Play again", () => (playing ? showStep(at) : at < last ? (play(), change({})) : begin())),
		input({ type: "range", min: 0, max: last, step: 1, value: at, "aria-label": "Step", "aria-valuetext": `${at} of ${last}`, style: track(0, at / last), oninput: ({ target }) => showStep(Number(target.value)) }),
		textButton("Remove others", () => change({ seed: state.seed + 1 })));
}

export function steps() {
	const { error } = state.answers.steps ?? {}, states = stages(), last = Math.max(0, states.length - 1), at = Math.min(state.step, last), unknown = last ? state.history.length - states[0].items.length : 0;
	const lead = state.history.length
		? "The model was trained to restore items that were removed from a history, the most likely first. Here it does so with yours: it sees only the items that are left."
		: "Add a few items to your history: here they are removed and restored, step by step.";
	if (last && known().length < 2) return view("steps", "Step by step", ALONE);
	return view("steps", "Step by step", lead, alertBox(error), last > 0 && [
		player(last),
		ol({ class: "stages" }, states.slice(0, at + 1).map((_, n) => stage(n, states))),
		at === last && p({ class: "lead" }, summary(states)),
		unknown > 0 && p({ class: "note" }, `Without ${count(unknown, "item")} of your history that the model does not know.`),
		p({ class: "key note" }, [["known", "in your history"], ["gap", "removed"], ["back", "restored"], ["other", "added instead"]].map(([kind, words]) =>
			span(null, svg({ viewBox: "0 0 10 10", class: "dot", "aria-hidden": "true" }, circle({ class: kind, cx: 5, cy: 5, r: 3.4 })), words)))]);
}
