package sample

import (
	"html/template"
	"strings"
)

// prose converts the description's text to HTML: paragraphs, lists of lines that begin with a dash,
// `code`, *emphasis* and **strong**. The description uses no more of Markdown.
func prose(text string) template.HTML {
	var b strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		switch {
		case block == "":
		case strings.HasPrefix(block, "- "):
			b.WriteString("<ul>")
			for item := range strings.SplitSeq(strings.TrimPrefix(block, "- "), "\n- ") {
				b.WriteString("<li>" + string(line(item)) + "</li>")
			}
			b.WriteString("</ul>")
		default:
			b.WriteString("<p>" + string(line(block)) + "</p>")
		}
	}
	return template.HTML(b.String())
}

// line is prose without paragraphs.
func line(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(strings.TrimSpace(text), "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			b.WriteString("<code>" + part + "</code>")
			continue
		}
		b.WriteString(marked(marked(part, "**", "strong"), "*", "em"))
	}
	return template.HTML(b.String())
}

// marked wraps the text between two marks in an element.
func marked(text, mark, element string) string {
	var b strings.Builder
	for i, part := range strings.Split(text, mark) {
		if i > 0 {
			b.WriteString([]string{"</", "<"}[i%2] + element + ">")
		}
		b.WriteString(part)
	}
	return b.String()
}
