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

// looksLikeS3 reports whether an S3 client sent the request. Every S3 client sets one of these headers or
// parameters.
func looksLikeS3(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-") {
			return true
		}
	}
	return strings.HasPrefix(r.Header.Get("Authorization"), "AWS") || r.URL.Query().Has("X-Amz-Signature")
}

// unserved reports whether the console serves no method at the path of the request.
func unserved(mux *http.ServeMux, r *http.Request) bool {
	get := r.Clone(r.Context())
	get.Method = http.MethodGet
	_, pattern := mux.Handler(get)
	return pattern == ""
}

// notHere replies with the URL of the S3 address: as an S3 error for S3 clients, and as text for others.
func (c *console) notHere(w http.ResponseWriter, s3 bool) {
	msg := "this is the console (console_address), which does not speak S3; the S3 address of this server is " +
		c.endpoint + " (address)"
	if !s3 {
		http.Error(w, msg, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusBadRequest)
	// a client that disconnected needs no reply
	_, _ = fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>", xml.Header, notS3Code)
	_ = xml.EscapeText(w, []byte(msg))
	_, _ = fmt.Fprint(w, "</Message></Error>")
}
