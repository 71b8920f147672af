// Sets of items that complete the history together, with alternatives.
import { count, tags } from "./dom.js";
import { add, change, state } from "./store.js";
import { addButton, alertBox, described, slider, textButton, view } from "./parts.js";

const { div, h3, li, ol, p, section } = tags;
export const ALTERNATIVES = 3;

export function complete() {
	const { data, error } = state.answers.complete ?? {}, sets = (state.history.length && data?.alternatives) || [];
	return view("complete", "Complete your history", state.history.length
		? `${count(state.n, "more item", "more items")}, chosen to fit your history and each other.`
		: "Add an item to your history first.",
		state.history.length > 0 && div({ class: "pair" },
			slider({ id: "n", title: `How many: ${state.n}`, low: "one", high: "a dozen", min: 1, max: 12, step: 1, value: state.n, set: (n) => change({ n }) }),
			slider({ id: "together", title: "Fit", low: "each item on its own", high: "items that belong together", default: 0.25, step: 0.05, value: state.together, set: (together) => change({ together }) })),
		alertBox(error),
		div({ class: error ? "sets stale" : "sets" }, sets.map(({ items }, n) => section({ key: n, "aria-label": `Set ${n + 1}` },
			h3(null, `Set ${n + 1}`),
			ol(null, items.map((one) => li({ key: one.item }, described(one), addButton(one)))),
			items.length > 1 && textButton(`Add all ${items.length} to the history`, () => add(...items))))),
		sets.length > 1 && p({ class: "note" }, "The sets share no item. Filters apply here; re-ranking does not."));
}
