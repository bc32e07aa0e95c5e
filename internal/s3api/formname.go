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

// fileVariable is the text in the key of a form that is replaced by the name of the file.
const fileVariable = "${filename}"

// formEnd is the number of bytes around the boundary behind the file of a form.
const formEnd = len("\r\n--") + len("--\r\n")

// nameAfterFile puts the name of the file into the key of a form, as S3 does before it checks the key. head is the
// part of the form that has been read, and before is the number of its bytes before the content of the file.
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

// fileName returns the name of the file from its headers at the end of head, without directories. The name is empty
// if the form gives none, as in S3.
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
