"""Makes docs/picture.png from the demo's report: `.venv/bin/python docs/picture.py` (needs Chromium)."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent


def main() -> None:
    """Runs the demo, opens its report where the two schedulers differ most, and takes the picture."""
    browser_path = shutil.which("chromium") or sys.exit("docs/picture.py: no chromium on the path; install it")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        subprocess.run([sys.executable, "-m", "compass_abs", "demo", "--quiet", "--out", folder], check=True)
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.goto((Path(folder) / "report.html").as_uri())
        page.wait_for_timeout(500)
        page.locator("#pick-left").select_option(label="GFS (best fit)")
        page.wait_for_timeout(500)
        page.locator("#panels").screenshot(path=HERE / "picture.png")
        browser.close()


if __name__ == "__main__":
    main()
