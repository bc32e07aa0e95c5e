// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/xmldoc"
)

// Documents are bodies that are read into memory: XML and JSON. These bound them by kind.
const (
	// longDocument bounds lists: 1,000 keys of 1,024 bytes to delete, or 10,000 parts with
	// checksums to join. Both take less than 3 MiB.
	longDocument = 4 << 20
	// taggedDocument bounds 50 tags and a website's configuration, for which S3 has this bound.
	taggedDocument = 128 << 10
	// shortDocument bounds every other document. S3 allows 64 KiB of CORS and 20 KiB of policy.
	shortDocument = 64 << 10
	// largeDocument is the size from which a document needs one of the server's slots.
	largeDocument = 256 << 10
	// documentSlots is how many large documents are worked on at one time. One takes up
	// to ten times its size while it is parsed.
	documentSlots = 8
	// slotWait is how long a request waits for a slot before it is told to slow down.
	slotWait = 2 * time.Second
	// documentRate is the slowest pace in bytes a second at which a document may come in.
	documentRate = 16 << 10
)

// maxDocument returns how long the body of a request may be that is no content.
func maxDocument(rctx *fasthttp.RequestCtx, at level) int64 {
	args := rctx.QueryArgs()
	switch {
	case rctx.IsPost() && at == onBucket && args.Has("delete"), rctx.IsPost() && at == onObject && args.Has("uploadId"):
		return longDocument
	case args.Has("tagging"), args.Has("website"):
		return taggedDocument
	}
	return shortDocument
}

// takeSlot waits for a slot for a document of n bytes. It returns what gives the slot back, or nil where none came
// free.
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

// checkLists refuses lists that are too long, before the front end makes objects of their elements:
// a document of 14 MiB would take 512 MiB. It is called once the signature has been checked.
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
		// Of two keys the front end takes the last, and of a document of another kind nothing: 200, and nothing is deleted.
		return checkDocument(ctx, "Delete")
	}
	return nil
}

// checkDocument refuses the XML document of a request unless it is a well-formed document of the given name.
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
		return refusal(http.StatusBadRequest, "MalformedXML",
			"The XML you provided was not well-formed or did not validate against our published schema: "+err.Error()+".")
	}
	return nil
}
