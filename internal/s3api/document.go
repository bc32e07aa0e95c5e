// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// Limits of documents in bytes. A document is a request body that is read into memory: XML or JSON.
const (
	// longDocument is the limit of lists: 1,000 keys of 1,024 bytes to delete, or 10,000 parts with checksums to
	// complete. Both need less than 3 MiB.
	longDocument = 4 << 20
	// taggedDocument is the limit of 50 tags, of a website configuration and of 100 notification configurations.
	taggedDocument = 128 << 10
	// lifecycleDocument is the limit of 1,000 lifecycle rules.
	lifecycleDocument = 1 << 20
	// shortDocument is the limit of every other document. S3 allows 64 KiB for CORS and 20 KiB for a policy.
	shortDocument = 64 << 10
	// largeDocument is the size from which a document needs one of the server's slots.
	largeDocument = 256 << 10
	// documentSlots is the largest number of large documents in progress. A document needs up to ten times its size
	// while it is parsed.
	documentSlots = 8
	// slotWait is the time that a request waits for a slot before it fails with SlowDown.
	slotWait = 2 * time.Second
	// documentRate is the lowest rate in bytes per second at which a client may send a document.
	documentRate = 16 << 10
)

// maxDocument returns the largest size in bytes of a request's document.
func maxDocument(rctx *fasthttp.RequestCtx, at level) int64 {
	args := rctx.QueryArgs()
	switch {
	case rctx.IsPost() && at == onBucket && args.Has("delete"), rctx.IsPost() && at == onObject && args.Has("uploadId"):
		return longDocument
	case args.Has("tagging"), args.Has("website"), args.Has("notification"):
		return taggedDocument
	case args.Has("lifecycle"):
		return lifecycleDocument
	}
	return shortDocument
}

// takeSlot waits for a slot for a document of n bytes. It returns a function that frees the slot, or nil if no slot
// became free in time.
func (s *Server) takeSlot(n int) func() {
	if n <= largeDocument {
		return func() {}
	}
	wait := time.NewTimer(slotWait)
	defer wait.Stop()
	select {
	case s.documents <- struct{}{}:
		return func() { <-s.documents }
	case <-wait.C:
		return nil
	}
}

// checkLists returns an error if a list is too long, before versitygw parses it: parsing a document of 14 MiB would
// take 512 MiB. The signature has to be checked before.
//
// If a list of deletions has no object, the error is an *xmldoc.Missing, because an upstream may accept such a list.
func checkLists(ctx context.Context) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok || !rctx.IsPost() {
		return nil
	}
	name, most, inside := "", 0, 0
	switch args := rctx.QueryArgs(); {
	case args.Has("delete"):
		name, most, inside = "Object", maxDeletions, 8
	case args.Has("uploadId"):
		name, most, inside = "Part", object.MaxParts, 16
	default:
		return nil
	}
	named, all := xmldoc.Count(rctx.Request.Body(), name)
	if named > most || all > 16+most*inside {
		return s3err.GetAPIError(s3err.ErrMalformedXML)
	}
	if name == "Object" {
		// Of two keys, versitygw would use the last. For a document of another kind, it would delete nothing and
		// reply with 200.
		err := xmldoc.Check(rctx.Request.Body(), "Delete")
		var missing *xmldoc.Missing
		if err != nil && !errors.As(err, &missing) {
			err = malformedXML(err)
		}
		if err == nil {
			rctx.Request.SetBody(plainTimes(rctx.Request.Body()))
		}
		return err
	}
	return nil
}

// httpTimes finds the times in a list of deletions that SDKs write as HTTP does.
var httpTimes = regexp.MustCompile(`<LastModifiedTime>\s*([A-Z][a-z]{2}, [^<]{1,40})</LastModifiedTime>`)

// plainTimes rewrites the times in a list of deletions as XML writes them, because versitygw reads no others.
func plainTimes(body []byte) []byte {
	if !bytes.Contains(body, []byte("<LastModifiedTime>")) {
		return body
	}
	return httpTimes.ReplaceAllFunc(body, func(element []byte) []byte {
		text := strings.TrimSpace(string(httpTimes.FindSubmatch(element)[1]))
		t, err := http.ParseTime(text)
		if err != nil {
			return element // versitygw refuses the list
		}
		return []byte("<LastModifiedTime>" + t.UTC().Format(time.RFC3339) + "</LastModifiedTime>")
	})
}

// checkDocument returns an error if the XML document of a request is not a valid document with the given name.
func checkDocument(ctx context.Context, name string) error {
	rctx, ok := ctx.(*fasthttp.RequestCtx)
	if !ok {
		return nil
	}
	body := rctx.Request.Body()
	if len(body) == 0 {
		return nil // the request uses headers instead
	}
	if err := xmldoc.Check(body, name); err != nil {
		return malformedXML(err)
	}
	return nil
}

// malformedXML returns the S3 error for an XML document that is not valid for the reason err.
func malformedXML(err error) error {
	return refusal(http.StatusBadRequest, "MalformedXML",
		"The XML you provided was not well-formed or did not validate against our published schema: "+err.Error()+".")
}
