// Completing the shelf: sets of items that go together, with alternatives.
import { count, tags } from "./dom.js";
import { about } from "./list.js";
import { slider } from "./controls.js";
import { add, change, state } from "./store.js";

const { article, button, div, h2, h3, li, ol, p, section, span, strong } = tags;

const WAYS = ["One way", "Another way", "A third way"];
export const ALTERNATIVES = WAYS.length;

export function complete() {
  const { data, error } = state.answers.complete ?? {}, sets = data?.alternatives ?? [];
  const addAll = (set) => {
    for (const { item, name } of set) state.names[item] = name;
    change({ shelf: [...new Set([...state.shelf, ...set.map(({ item }) => item)])] }, { history: true });
  };
  return article(
    { class: "complete", "aria-labelledby": "complete-title" },
    h2({ id: "complete-title" }, "Complete the shelf"),
    p({ class: "lead" }, state.shelf.length
      ? `${count(state.n, "thing")} more, chosen as a set that goes with your shelf and with itself.`
      : "Put something on the shelf first: a completion needs something to complete."),
    div({ class: "pair" },
      slider({ id: "n", title: `How many: ${state.n}`, low: "one", high: "a dozen", least: 1, most: 12, step: 1, value: state.n, set: (n) => change({ n }) }),
      slider({ id: "together", title: "As a set", low: "each the best by itself", high: "belonging together", value: state.together, set: (together) => change({ together }) })),
    error && p({ class: "error", role: "alert" }, error),
    div({ class: "ways" }, sets.map((set, n) => section(
      { key: n, "aria-label": WAYS[n] },
      h3(null, WAYS[n]),
      ol(null, set.map((one) => li(
        { key: one.item },
        div({ class: "what" }, strong(null, one.name), span({ class: "about" }, about(one.columns))),
        button({ class: "act", "aria-label": `Put ${one.name} on the shelf`, title: "Put it on the shelf", onClick: () => add(one.item, one.name) }, "+"),
      ))),
      set.length > 1 && button({ class: "plain", onClick: () => addAll(set) }, `Put all ${set.length} on the shelf`),
    ))),
    sets.length > 1 && p({ class: "note" }, "The ways share no item. Filters hold here too; knobs do not."),
  );
}
