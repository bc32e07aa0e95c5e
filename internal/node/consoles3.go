// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
)

// notS3Code is the S3 code with which the console refuses requests that belong to the S3 address.
const notS3Code = "NotS3Address"

// looksLikeS3 reports whether a client of S3 sent a request: each of them sets one of these.
func looksLikeS3(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") {
			return true
		}
	}
	return strings.HasPrefix(r.Header.Get("Authorization"), "AWS") || r.URL.Query().Has("X-Amz-Signature")
}

// unserved reports whether the console has nothing at a path, whatever the method.
func unserved(mux *http.ServeMux, r *http.Request) bool {
	get := r.Clone(r.Context())
	get.Method = http.MethodGet
	_, pattern := mux.Handler(get)
	return pattern == ""
}

// notHere says where S3 is served: to a client of S3 in the words of S3, which it shows, to others as text.
func (c *console) notHere(w http.ResponseWriter, s3 bool) {
	msg := "this is the console (console_address), which does not speak S3; the S3 address of this server is " +
		c.endpoint + " (address)"
	if !s3 {
		http.Error(w, msg, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusBadRequest)
	// a client that went away needs no answer
	_, _ = fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>", xml.Header, notS3Code)
	_ = xml.EscapeText(w, []byte(msg))
	_, _ = fmt.Fprint(w, "</Message></Error>")
}
