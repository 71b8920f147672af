// What a list is made with: knobs and filters, what they ask of the service, and how they read in words.
import { listed, number } from "./dom.js";

export const KNOBS = [
	{ name: "adventurousness", title: "Adventure", least: 0, low: "the obvious", high: "the unexpected" },
	{ name: "popularity", title: "Fame", least: -1, low: "hidden gems", high: "big names" },
	{ name: "diversity", title: "Variety", least: 0, low: "of a kind", high: "all different" },
];

const weights = (least) => (map) => of(map) && Object.values(map).every((weight) => weight >= least && weight <= 1);
const of = (map) => typeof map === "object" && map !== null;
// What is set by column of the item table, and what a link may set.
const MAPS = {
	wish: weights(-1),
	shares: weights(0),
	only: of,
	never: of,
	range: (ends) => Array.isArray(ends) && ends.length === 2 && ends.every((end) => end === null || Number.isFinite(end)),
	contains: (text) => typeof text === "string",
	is: (flag) => typeof flag === "boolean",
	at_most: (most) => Number.isInteger(most) && most > 0,
};

export const atRest = () => ({
	model: "", adventurousness: 0, popularity: 0, diversity: 0, ...Object.fromEntries(Object.keys(MAPS).map((map) => [map, {}])),
});

// Only what differs from rest.
export function turned(settings) {
	const rest = atRest();
	return Object.fromEntries(Object.entries(settings).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(rest[name])));
}
export const nTurned = (settings) => Object.keys(turned({ ...settings, model: "" })).length;

// A link may hold anything: what is not of the expected kind stays at rest.
export function sane(given) {
	const settings = atRest();
	if (!of(given)) return settings;
	if (typeof given.model === "string") settings.model = given.model;
	for (const { name, least } of KNOBS) if (given[name] >= least && given[name] <= 1) settings[name] = Number(given[name]);
	for (const [map, test] of Object.entries(MAPS)) {
		for (const [column, value] of Object.entries(given[map] ?? {})) if (test(value)) settings[map][column] = value;
	}
	return settings;
}

// A copy of a map in which one column is set, or gone where the value says nothing.
export function put(map, column, value) {
	const { [column]: _, ...rest } = map;
	const nothing = value === undefined || value === "" || (of(value) && !Object.values(value).some((one) => one !== null));
	return nothing ? rest : { ...rest, [column]: value };
}

const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;

// An item belongs to each of the values that its column names.
const belongs = ({ name }, value) => `\`${name}\` has ${quoted(value)}`;

export function condition(settings, columns) {
	const parts = [];
	for (const column of columns) {
		const own = (map) => settings[map][column.name], [least, most] = own("range") ?? [null, null];
		const test = (text, wanted) => wanted && parts.push(`\`${column.name}\` ${text}`);
		test(`>= ${least}`, least !== null);
		test(`<= ${most}`, most !== null);
		test(`contains ${quoted(own("contains"))}`, own("contains"));
		test(`== ${own("is")}`, own("is") !== undefined);
		if (own("only")) parts.push(`(${Object.keys(own("only")).map((value) => belongs(column, value)).join(" or ")})`);
		for (const value of Object.keys(own("never") ?? {})) parts.push(`not ${belongs(column, value)}`);
	}
	return parts.join(" and ");
}

// The body of a request for a list.
export function request(settings, { models, columns }, rest) {
	const set = turned(settings), where = condition(settings, columns), knobs = {};
	for (const name of [...KNOBS.map(({ name }) => name), "wish", "shares"]) if (name in set) knobs[name] = set[name];
	return { ...rest, model: settings.model || models[0].name, knobs, at_most: settings.at_most, ...(where && { where }) };
}

const degree = (value) => (Math.abs(value) < 0.34 ? "a little " : Math.abs(value) > 0.67 ? "strongly " : "");
const all = (map, word) => Object.values(map).flatMap((values) => Object.entries(values).map(([value, weight]) => word(value, weight))).filter(Boolean);

// Settings as half a sentence.
export function inWords(settings) {
	const words = [], told = (parts, before, join = listed) => parts.length && words.push(before + join(parts));
	told(KNOBS.filter(({ name }) => settings[name]).map(({ name, low, high }) => `${degree(settings[name])}towards ${settings[name] > 0 ? high : low}`), "leaning ");
	for (const [word, weight] of [["more", 0.5], ["much more", 1], ["less", -0.5], ["much less", -1]]) {
		told(all(settings.wish, (value, own) => own * weight > 0 && Math.abs(own) > 0.7 === Math.abs(weight) > 0.7 && value), word + " ");
	}
	told(all(settings.shares, (value, share) => `${number(100 * share)} % ${value}`), "about ");
	told(all(settings.only, (value) => value), "only ", (parts) => parts.join(" or "));
	told(all(settings.never, (value) => value), "no ", (parts) => parts.join(", no "));
	const each = (map, word) => Object.entries(settings[map]).forEach(([column, value]) => words.push(word(column, value)));
	each("range", (column, [least, most]) => column + (least === null ? "" : ` from ${least}`) + (most === null ? "" : ` up to ${most}`));
	each("contains", (column, text) => `${column} with “${text}”`);
	each("is", (column, flag) => (flag ? column : `not ${column}`));
	each("at_most", (column, most) => `at most ${most} of a ${column}`);
	return words.join("; ");
}
