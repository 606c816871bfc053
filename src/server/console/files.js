// Files and images that tools have made. They are fetched with the API key and shown from memory; only types of images
// that cannot hold scripts are shown, all others can be downloaded.

import { getBlob, path } from "./api.js";
import { announce, button, bytes, h, icon } from "./dom.js";

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/** Largest image that is fetched to be shown. */
const MAX_IMAGE = 16 * 1024 * 1024;

/** A PNG image of a result. */
export function pngImage(base64, alt) {
  if (!/^[A-Za-z0-9+/=\s]+$/.test(base64)) return null;
  return h("img.plot", { src: `data:image/png;base64,${base64}`, alt, loading: "lazy" });
}

/** A file with its name, size and a button that downloads it; an image is shown too. */
export function fileCard(file, { show = true } = {}) {
  const name = String(file.filename ?? file.name ?? file.id);
  const type = String(file.mime_type ?? "");
  const size = file.bytes ?? file.size;
  const card = h("figure.file", null);
  const isImage = show && IMAGES.includes(type || typeOfName(name)) && (size ?? 0) <= MAX_IMAGE;
  if (isImage) {
    showImage(card, file.id, name);
  }
  card.append(
    h(
      "figcaption",
      null,
      icon("file"),
      h("span.file-name", null, name),
      Number.isFinite(size) && h("span.muted", null, bytes(size)),
      button("Download", "download", (event) => download(file.id, name, event.currentTarget), {
        "aria-label": `Download ${name}`,
      }),
    ),
  );
  return card;
}

function typeOfName(name) {
  const ending = name.split(".").pop().toLowerCase();
  return (
    { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" }[ending] ?? ""
  );
}

/** Shows the content of a stored file as an image, once it is there. */
export async function showImage(place, id, alt) {
  const image = h("img.plot", { alt, loading: "lazy" });
  try {
    const blob = await getBlob(path`/v1/files/${id}/content`);
    if (!IMAGES.includes(blob.type.split(";")[0])) return;
    image.src = URL.createObjectURL(blob);
    image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
    place.prepend(image);
  } catch {
    // The file is gone; its card says so when somebody wants it.
  }
}

async function download(id, name, from) {
  try {
    saveBlob(await getBlob(path`/v1/files/${id}/content`), name);
  } catch (error) {
    from.after(h("span.problem", { role: "alert" }, error.message));
  }
}

/** Gives a blob to the browser as a download. */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const anchor = h("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  URL.revokeObjectURL(url);
  announce(`${name} is downloaded.`);
}
