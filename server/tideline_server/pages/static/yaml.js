// Plain data as YAML, for people to read and edit. The coordinator reads it; nothing here does.

const PLAIN = /^[A-Za-z_][A-Za-z0-9_ .+-]*$/;
const TAKEN = /^(true|false|null|yes|no|on|off|y|n|~|[0-9.+-].*)$/i;

const UNSEEN = /[\u007f-\u00a0\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]/g;

// JSON in which nothing is unseen, or turns the direction of what follows: what is shown is what is copied.
export const written = (value) => JSON.stringify(value).replace(UNSEEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

function scalar(value) {
  if (typeof value !== "string") return written(value);
  return PLAIN.test(value) && !TAKEN.test(value) && value.trim() === value ? value : written(value);
}

const isFlat = (value) => value === null || typeof value !== "object";

function lines(value, depth) {
  const pad = "  ".repeat(depth);
  if (Array.isArray(value)) return value.flatMap((each) => (isFlat(each) ? [`${pad}- ${scalar(each)}`] : [`${pad}- ${inline(each)}`]));
  return Object.entries(value).flatMap(([name, each]) => {
    const key = `${pad}${scalar(name)}:`;
    if (isFlat(each)) return [`${key} ${scalar(each)}`];
    if (Array.isArray(each) && each.every(isFlat)) return [`${key} ${inline(each)}`];
    return Object.keys(each).length ? [key, ...lines(each, depth + 1)] : [`${key} ${Array.isArray(each) ? "[]" : "{}"}`];
  });
}

function inline(value) {
  if (isFlat(value)) return scalar(value);
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  return `{${Object.entries(value).map(([name, each]) => `${scalar(name)}: ${inline(each)}`).join(", ")}}`;
}

export const yaml = (value) => `${lines(value, 0).join("\n")}\n`;
