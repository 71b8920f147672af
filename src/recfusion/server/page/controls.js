// Sliders for the knobs, and filters made from the columns that the item table has.
import { tags } from "./dom.js";
import { KNOBS, atRest, nTurned, put } from "./settings.js";
import { change, state, turn } from "./store.js";
import { slider } from "./parts.js";

const { b, button, details, div, fieldset, h2, input, label, legend, option, select, span, summary } = tags;
const BRUSHES = { more: "more of", less: "less of", only: "only", never: "none of", shares: "a share" };
const percent = (share) => `${Math.round(100 * share)} %`;

function mark(column, value) {
	const { wish, shares, only, never } = state.now, weight = wish[column]?.[value], share = shares[column]?.[value];
	if (only[column]?.[value]) return ["only", "✓", "only"];
	if (never[column]?.[value]) return ["never", "⊘", "none of"];
	if (share !== undefined) return ["shares", percent(share), `${percent(share)} of the list`];
	if (weight > 0) return weight > 0.7 ? ["more", "++", "much more"] : ["more", "+", "more"];
	if (weight < 0) return weight < -0.7 ? ["less", "−−", "much less"] : ["less", "−", "less"];
	return ["", "", ""];
}

// A click gives a value the brush's meaning, a second one more of it where there is more, the last takes it away.
function paint(column, value) {
	const now = state.now, brush = state.brush, [was, sign] = mark(column, value), patch = {};
	for (const map of ["wish", "shares", "only", "never"]) patch[map] = put(now[map], column, without(now[map][column], value));
	const set = (map, to) => (patch[map] = put(patch[map], column, { ...patch[map][column], [value]: to }));
	const way = { more: 1, less: -1 }[brush];
	if (way && was !== brush) set("wish", way / 2);
	else if (way && sign.length === 1) set("wish", way);
	else if (brush === "shares" && was !== brush) {
		patch.shares = put({}, column, patch.shares[column]); // of one column at a time
		const share = Math.min(0.3, left(patch.shares[column]));
		if (share > 0) set("shares", share);
	} else if (!way && was !== brush) set(brush, true);
	turn(patch, true);
}
const without = (map, value) => Object.fromEntries(Object.entries(map ?? {}).filter(([other]) => other !== value));
const left = (shares) => 1 - Math.round(100 * Object.values(shares ?? {}).reduce((sum, share) => sum + share, 0)) / 100;

function share(column, value, wanted) {
	const rest = without(state.now.shares[column], value);
	turn({ shares: { [column]: { ...rest, [value]: Math.max(0.05, Math.min(wanted, left(rest))) } } });
}

function categories({ name, values }) {
	const { shares, at_most: most } = state.now;
	return [
		div({ class: "brushes", role: "radiogroup", "aria-label": `A click on a ${name} means` }, Object.entries(BRUSHES).map(([brush, word]) =>
			label({ key: brush }, input({ type: "radio", class: "hidden", name: `brush-${name}`, checked: state.brush === brush, onchange: () => change({ brush }) }), span(null, word)))),
		div({ class: "chips" },
			values.map((value) => {
				const [kind, sign, word] = mark(name, value);
				return button({ key: value, class: `chip ${kind}`, "aria-pressed": String(kind !== ""), "aria-label": word ? `${value}: ${word}` : value, onclick: () => paint(name, value) },
					sign && span({ class: "sign" }, sign), value);
			})),
		Object.entries(shares[name] ?? {}).map(([value, own]) =>
			slider({ id: `share-${name}-${value}`, title: `${value}: ${percent(own)} of the list`, low: "none", high: "all", value: own, set: (wanted) => share(name, value, wanted) })),
		label({ class: "most" }, "At most ", select({ value: most[name] ?? "", onchange: (event) => turn({ at_most: put(most, name, Number(event.target.value) || undefined) }) },
			option({ value: "" }, "any number"), [1, 2, 3, 5, 8].map((n) => option({ key: n, value: n }, n))), " of each"),
	];
}

const field = (word, props) => label(null, `${word} `, input(props));

function numbers({ name, min, max }) {
	const ends = state.now.range[name] ?? [null, null];
	return ["from", "to"].map((word, end) => field(word, {
		type: "number", step: "any", value: ends[end] ?? "", placeholder: [min, max][end], "aria-label": `${name} ${word}`,
		oninput: ({ target }) => turn({ range: put(state.now.range, name, ends.with(end, target.value === "" ? null : Number(target.value))) }),
	}));
}

const text = ({ name }) => field("with", {
	type: "text", value: state.now.contains[name] ?? "", placeholder: "text", "aria-label": `${name} with`, maxlength: 100,
	oninput: ({ target }) => turn({ contains: put(state.now.contains, name, target.value) }),
});

const flag = ({ name }) => select({
	value: String(state.now.is[name] ?? ""), "aria-label": name,
	onchange: ({ target }) => turn({ is: put(state.now.is, name, { true: true, false: false }[target.value]) }),
}, option({ value: "" }, "either"), option({ value: "true" }, "yes"), option({ value: "false" }, "no"));

const MAKERS = { categories, number: numbers, text, boolean: flag };

// Beside the list; on a phone a sheet at the lower edge, so that the list is in sight while a knob turns.
export function controls() {
	const n = nTurned(state.now), order = Object.keys(MAKERS);
	const columns = state.model.columns.filter(({ name }) => !name.includes("`")).sort((one, other) => order.indexOf(one.kind) - order.indexOf(other.kind));
	return details({ class: "controls", open: state.sheet, ontoggle: ({ target }) => target.open !== state.sheet && change({ sheet: target.open }) },
		summary(null, b(null, "Knobs and filters"), n > 0 && span({ class: "n" }, `${n} set`)),
		div({ class: "inner" },
			div({ class: "head" }, h2(null, "Knobs"), button({ class: "quiet", disabled: !n, onclick: () => turn({ ...atRest(), model: state.now.model }, true) }, "Reset all")),
			KNOBS.filter(({ name }) => name in state.model.knobs).map((knob) => slider({ ...knob, id: knob.name, value: state.now[knob.name], set: (value) => turn({ [knob.name]: value }) })),
			columns.length > 0 && h2({ class: "second" }, "Filters and wishes"),
			columns.map((column) => fieldset({ key: column.name, class: `column ${column.kind}` }, legend(null, column.name), MAKERS[column.kind](column)))));
}
