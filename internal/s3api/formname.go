// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"mime"
	"net/textproto"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/versity/versitygw/s3err"
)

// fileVariable stands in the key of a form for the name of its file.
const fileVariable = "${filename}"

// formEnd is how many bytes stand around the boundary behind the file of a form.
const formEnd = len("\r\n--") + len("--\r\n")

// nameAfterFile puts the name of the file into the key of a form, as S3 does before it judges the key. head is the form
// as far as it has been read, and before is how many of its bytes stand before the content of the file.
func nameAfterFile(fields map[string]string, head []byte, before int64, boundary string) error {
	key := fields["key"]
	if !strings.Contains(key, fileVariable) {
		return nil
	}
	if before < 0 || before > int64(len(head)) {
		return s3err.GetAPIError(s3err.ErrMalformedPOSTRequest)
	}
	name := fileName(head[:before], boundary)
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return invalid("The name of the file " + strconv.QuoteToASCII(name) +
			" cannot be part of a key: it is no UTF-8, or has a zero byte.")
	}
	fields["key"] = strings.ReplaceAll(key, fileVariable, name)
	return nil
}

// fileName returns the name of the file whose headers stand at the end of head: what follows the last slash or
// backslash. It is empty where the form gives none, as in S3.
func fileName(head []byte, boundary string) string {
	if at := bytes.LastIndex(head, []byte("--"+boundary+"\r\n")); at >= 0 {
		head = head[at:]
	}
	disposition := ""
	for line := range strings.SplitSeq(string(head), "\r\n") {
		name, value, ok := strings.Cut(line, ":")
		if ok && textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)) == "Content-Disposition" {
			disposition = strings.TrimSpace(value)
		}
	}
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil {
		return ""
	}
	name := params["filename"]
	return name[strings.LastIndexAny(name, `/\`)+1:]
}
