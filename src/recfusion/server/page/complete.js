// Completing the shelf: sets of items that go together, with alternatives.
import { count, tags } from "./dom.js";
import { add, change, state } from "./store.js";
import { about, plain, plus, slider, trouble, view } from "./parts.js";

const { div, h3, li, ol, p, section, strong } = tags;
export const WAYS = ["One way", "Another way", "A third way"];

export function complete() {
	const { data, error } = state.answers.complete ?? {}, ways = (state.shelf.length && data?.alternatives) || [];
	return view("complete", "Complete the shelf", state.shelf.length
		? `${count(state.n, "thing")} more, chosen as a set that goes with your shelf and with itself.`
		: "Put something on the shelf first.",
		div({ class: "pair" },
			slider({ id: "n", title: `How many: ${state.n}`, low: "one", high: "a dozen", least: 1, most: 12, step: 1, value: state.n, set: (n) => change({ n }) }),
			slider({ id: "together", title: "As a set", low: "each the best by itself", high: "belonging together", value: state.together, set: (together) => change({ together }) })),
		trouble(error),
		div({ class: "ways" }, ways.map(({ items }, n) => section({ key: n, "aria-label": WAYS[n] },
			h3(null, WAYS[n]),
			ol(null, items.map((one) => li({ key: one.item }, div({ class: "what" }, strong(null, one.name), about(one)), plus(one)))),
			items.length > 1 && plain(`Put all ${items.length} on the shelf`, () => add(...items))))),
		ways.length > 1 && p({ class: "note" }, "The ways share no item. Filters hold here too; knobs do not."));
}
