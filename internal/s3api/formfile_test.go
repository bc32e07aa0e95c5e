// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"io"
	"mime/multipart"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/versity/versitygw/s3api/utils"
)

// TestFieldsBehindAFormsFile: they are no part of the file, as the button that sends a form.
func TestFieldsBehindAFormsFile(t *testing.T) {
	const head = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n"
	const field = "\r\n--B\r\nContent-Disposition: form-data; name=\"submit\"\r\n\r\nUpload"
	long := strings.Repeat("\r\n--", 50_000)
	for name, c := range map[string]struct{ in, want string }{
		"no field":            {"content" + "\r\n--B--\r\n", "content"},
		"a field":             {"content" + field + "\r\n--B--\r\n", "content"},
		"two fields":          {"content" + field + field + "\r\n--B--\r\n", "content"},
		"an empty file":       {field + "\r\n--B--\r\n", ""},
		"an empty file alone": {"\r\n--B--\r\n", ""},
		"almost a field": {"a\r\n--Bx\r\n--B \r\n--B\n\r\n--B\r" + "\r\n--B--\r\n",
			"a\r\n--Bx\r\n--B \r\n--B\n\r\n--B\r"},
		"a beginning of a beginning": {"a\r\n\r\n\r" + field + "\r\n--B--\r\n", "a\r\n\r\n\r"},
		"a long file":                {long + field + "\r\n--B--\r\n", long},
		"no end":                     {"content" + field, "refused"},
		"no end at all":              {"content", "refused"},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r },
			"by bytes": iotest.OneByteReader, "with its end": iotest.DataErrReader} {
			parser, err := utils.NewMultipartParser(wrap(strings.NewReader(head+c.in)), "B", int64(len(head+c.in)))
			if err != nil {
				t.Fatal(err)
			}
			form, err := parser.Parse()
			if err != nil {
				if c.want != "refused" {
					t.Errorf("%s, %s: %v", name, how, err)
				}
				continue
			}
			file := &formFile{r: form.FileRdr, end: []byte("\r\n--B\r\n")}
			got, err := io.ReadAll(file)
			if c.want == "refused" {
				if err == nil {
					t.Errorf("%s, %s: %.40q", name, how, got)
				}
				continue
			}
			if err != nil || string(got) != c.want || file.Length() != int64(len(c.want)) {
				t.Errorf("%s, %s: %.40q of %d bytes (%v), expected %.40q", name, how, got, file.Length(), err, c.want)
			}
		}
	}
}

// TestAFormWithAButton posts a form whose button stands behind the file, as HTML forms have it.
func TestAFormWithAButton(t *testing.T) {
	w := start(t, nil, nil)
	public(w)
	var body bytes.Buffer
	m := multipart.NewWriter(&body)
	_ = m.WriteField("key", "key")
	part, _ := m.CreateFormFile("file", "file")
	_, _ = part.Write([]byte("content"))
	_ = m.WriteField("submit", "Upload")
	_ = m.Close()
	r, err := w.try("", "", "POST", "/public", body.Bytes(), "Content-Type", m.FormDataContentType())
	if err != nil || r.StatusCode != 204 {
		t.Fatalf("%v %+v", err, r)
	}
	if r := w.must(200, "GET", "/public/key", nil); string(r.body) != "content" {
		t.Errorf("stored %q", r.body)
	}
	w.posted(501, "public", "summed", "content-md5", md5Base64("other"))
}
