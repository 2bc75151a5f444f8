"""Reads a page back: checks that it is well formed and self-contained, and collects its source lines."""

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link"}
LINE_CLASSES = {"od-native": "native", "od-cpython": "cpython", "od-interpreted": "not compiled"}


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, dict(attributes), parent
        self.children, self.parts = [], []

    @property
    def classes(self):
        return (self.attributes.get("class") or "").split()

    def all(self):
        yield self
        for child in self.children:
            yield from child.all()

    def whole_text(self):
        return "".join(part if isinstance(part, str) else part.whole_text() for part in self.parts)


class Page(HTMLParser):
    """Fails on tags that do not nest, and on anything that would be loaded from elsewhere."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.root = self.at = Element("", [], None)
        self.feed(text)
        self.close()
        assert self.at is self.root, f"<{self.at.tag}> is not closed"
        self.ids = {}
        for element in self.root.all():
            ident = element.attributes.get("id")
            assert ident is None or ident not in self.ids, f"id {ident} is there twice"
            self.ids[ident] = element
        self.check_self_contained(text)

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice"
        element = Element(tag, attributes, self.at)
        self.at.children.append(element)
        self.at.parts.append(element)
        if tag not in VOID:
            self.at = element

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        self.at = self.at.parent

    def handle_data(self, data):
        self.at.parts.append(data)

    def check_self_contained(self, text):
        assert "http:" not in text and "https:" not in text
        assert "@import" not in text and "url(" not in text
        for element in self.root.all():
            assert element.tag not in ("script", "link", "iframe", "object", "embed", "img", "base"), (
                element.tag
            )
            assert not {name for name in element.attributes if name.startswith("on")}, element.attributes
            assert not {"src", "srcset", "action", "xlink:href"} & set(element.attributes)
            href = element.attributes.get("href", "#")
            assert href.startswith("#") and (href == "#" or href[1:] in self.ids), href

    def by_id(self, ident):
        return self.ids[ident]

    def find(self, css):
        return [element for element in self.root.all() if css in element.classes]

    def tags(self, tag):
        return [element for element in self.root.all() if element.tag == tag]

    def lines(self):
        """Source lines by number: (status or None, text). Each may be there once."""
        found = {}
        for element in self.find("od-line"):
            if "data-line" not in element.attributes:
                continue
            number = int(element.attributes["data-line"])
            assert number not in found, f"line {number} is there twice"
            statuses = [LINE_CLASSES[name] for name in element.classes if name in LINE_CLASSES]
            assert len(statuses) <= 1
            code = next(child for child in element.all() if child.tag == "code")
            found[number] = (statuses[0] if statuses else None, code.whole_text())
        return found

    def line(self, number):
        return next(e for e in self.find("od-line") if e.attributes.get("data-line") == str(number))

    def behind(self, number):
        """What opens behind a line."""
        summary = self.line(number)
        assert summary.tag == "summary", f"line {number} has nothing to open"
        return next(child for child in summary.parent.children if "od-more" in child.classes)

    def assembly(self, number):
        return "\n".join(e.whole_text() for e in self.behind(number).all() if e.tag == "pre")
