# SPDX-License-Identifier: Apache-2.0
"""What a person does with the console, as the tests need it."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect


class Console:
    """One open page of the console."""

    def __init__(self, page: Page, base: str, guard):
        self.page, self.base, self.guard = page, base.rstrip("/"), guard

    def go(self, fragment: str = "") -> None:
        """Open a page by its fragment. The page is loaded anew if it is not there yet."""
        self.page.goto(f"{self.base}/console/{fragment}")

    def log_in(self, access: str, secret: str, fragment: str = "") -> None:
        self.go(fragment)
        self.page.get_by_label("Access key").fill(access)
        self.page.get_by_label("Secret key").fill(secret)
        self.page.get_by_role("button", name="Log in").click()
        expect(self.page.locator("#main")).to_be_visible()  # the navigation of a phone is folded

    def heading(self, text: str) -> Locator:
        return self.page.get_by_role("heading", level=1, name=text, exact=True)

    def button(self, name: str, inside: Locator | None = None) -> Locator:
        return (inside or self.page).get_by_role("button", name=name, exact=True)

    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def row(self, name: str) -> Locator:
        """The row of an object or a folder in a list."""
        return self.page.get_by_role("row").filter(has=self.page.get_by_role("link", name=name, exact=True))

    def menu(self, label: str, item: str) -> None:
        """Choose an item of the menu with this label."""
        self.button(label).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    def said(self, text: str) -> None:
        """Wait for a message."""
        expect(self.page.get_by_role("region", name="Messages")).to_contain_text(text)

    def choose_files(self, *files) -> None:
        """Choose files to upload, as the dialog of the browser does."""
        self.page.locator("input[data-upload]").set_input_files(list(files))

    def serious_problems(self) -> list[str]:
        """Return what axe finds that keeps people from using the page."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{v['id']} ({v['impact']}): {v['help']}: {[n['html'][:160] for n in v['nodes'][:3]]}"
            for v in found
            if v["impact"] in ("serious", "critical")
        ]

    def too_wide(self) -> list[str]:
        """Return the elements that make the page scroll sideways."""
        return self.page.evaluate("""() => {
          const root = document.documentElement;
          if (root.scrollWidth <= root.clientWidth && document.body.scrollWidth <= root.clientWidth) return [];
          const end = (e) => Math.round(e.getBoundingClientRect().right);
          return [...document.querySelectorAll('body *')].filter((e) => end(e) > innerWidth + 1)
            .slice(0, 5).map((e) => `${e.tagName}.${e.className} ends at ${end(e)} of ${innerWidth}`);
        }""")

    def overlaps(self) -> list[str]:
        """Return pairs of controls and headings in view that lie on each other."""
        return self.page.evaluate("""() => {
          const dialog = document.querySelector('dialog[open]');
          const kinds = ['h1', 'h2', 'h3', 'button', 'a', 'input', 'select'].flatMap((k) => [`main ${k}`, `dialog ${k}`]);
          const skip = '.unseen, .uploads, .toasts, [aria-hidden=true]';
          const all = [...(dialog ?? document).querySelectorAll(kinds.join())]
            .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest(skip))
            .map((e) => ({ e, r: e.getBoundingClientRect() })).filter(({ r }) => r.width > 2 && r.height > 2);
          const bad = [];
          all.forEach((a, i) => all.slice(i + 1).forEach((b) => {
            if (a.e.contains(b.e) || b.e.contains(a.e)) return;
            const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
            const h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
            if (w > 2 && h > 2) bad.push(`"${a.e.textContent.trim().slice(0,
              40)}" lies on "${b.e.textContent.trim().slice(0, 40)}"`);
          }));
          return bad.slice(0, 5);
        }""")
