// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
)

//go:embed page.html.tmpl
var pageTemplate string

//go:embed page.css
var pageStyle string

// WriteHTML writes the benchmark results f as one self-contained HTML file. The HTML file contains its style and
// plots, has no script, and forbids all requests by its content security policy. All text from the benchmark results
// is escaped in the HTML. If the HTML page cannot be built, nothing is written.
func WriteHTML(w io.Writer, f *record.File) error {
	t, err := template.New("page").Funcs(template.FuncMap{"glue": glue}).Parse(pageTemplate)
	if err != nil {
		return errs.Wrap("read", "page template", err)
	}
	sum := sha256.Sum256([]byte(pageStyle))
	page := newPage(f)
	page.Style = template.CSS(pageStyle)
	page.Policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; base-uri 'none'; form-action 'none'"
	var out bytes.Buffer
	if err := t.Execute(&out, page); err != nil {
		return errs.Wrap("make", "HTML report", err)
	}
	_, err = w.Write(out.Bytes())
	return errs.Wrap("write", "HTML report", err)
}
