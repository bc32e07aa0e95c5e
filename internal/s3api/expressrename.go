// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// maxClientToken is the longest client token, as in S3.
const maxClientToken = 64

// rename answers RenameObject.
func (d *directories) rename(a *asked) error {
	a.rctx.SetUserValue(operationKey, "RenameObject")
	r, err := d.renaming(a)
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	for _, x := range []struct {
		action object.Action
		key    string
	}{{object.ActionGet, r.From}, {object.ActionDelete, r.From}, {object.ActionPut, r.To}} {
		if a.by.session != nil {
			break
		}
		if err := d.permits(a, x.action, x.key); err != nil {
			return d.refuse(a.ctx, err)
		}
	}
	if d.s.opts.ReadOnly {
		return d.refuse(a.ctx, s3err.GetAPIError(s3err.ErrAccessDenied))
	}
	if err := d.store.Rename(patient(a.rctx), r); err != nil {
		return d.refuse(a.ctx, d.s.backend.s3Error("RenameObject", object.Ref{Bucket: a.bucket, Key: r.From}, err))
	}
	return nil // status 200 without a body: SDKs take a body that is no XML for a failure
}

// renaming reads the arguments of a rename.
func (d *directories) renaming(a *asked) (object.Rename, error) {
	h := &a.rctx.Request.Header
	r := object.Rename{Bucket: a.bucket, To: a.key, Token: string(h.Peek("X-Amz-Client-Token"))}
	if h.ContentLength() > 0 || h.ContentLength() == chunked {
		return r, invalid("A rename has no body.")
	}
	source, err := url.PathUnescape(string(h.Peek("X-Amz-Rename-Source")))
	if err != nil {
		return r, invalid("x-amz-rename-source is badly escaped.")
	}
	// The source is a key, or the bucket and a key.
	r.From = strings.TrimPrefix(source, "/")
	if bucket, key, ok := strings.Cut(r.From, "/"); ok && object.IsDirectory(bucket) {
		if bucket != a.bucket {
			return r, invalid("A rename stays within one bucket. The source is in " + strconv.QuoteToASCII(bucket) + ".")
		}
		r.From = key
	}
	if r.From == "" {
		return r, invalid("x-amz-rename-source is " + strconv.QuoteToASCII(source) + "; expected the key of an object.")
	}
	for _, key := range []string{r.From, r.To} {
		if err := checkKey(key); err != nil {
			return r, err
		}
		if strings.HasSuffix(key, "/") {
			return r, invalid("A key that ends in / cannot be renamed, and cannot be a new name.")
		}
	}
	if len(r.Token) > maxClientToken || strings.ContainsFunc(r.Token, func(c rune) bool { return c < 33 || c > 126 }) {
		return r, invalid("x-amz-client-token has at most 64 printable ASCII characters without spaces.")
	}
	from, err := timeConditions(h, "X-Amz-Rename-Source-")
	if err != nil {
		return r, err
	}
	to, err := timeConditions(h, "")
	if err != nil {
		return r, err
	}
	r.CheckFrom = from.check
	r.CheckTo = func(i *object.Info) error {
		if i == nil {
			if to.match != nil || to.since != nil {
				return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
			}
			return nil
		}
		return to.check(i)
	}
	return r, nil
}

// tested are the conditions on one object of a rename.
type tested struct {
	match, noneMatch *string
	since, until     *time.Time
}

// timeConditions reads the conditions in headers with a prefix.
func timeConditions(h *fasthttp.RequestHeader, prefix string) (tested, error) {
	t := tested{match: peeked(h, prefix+"If-Match"), noneMatch: peeked(h, prefix+"If-None-Match")}
	for name, at := range map[string]**time.Time{"If-Modified-Since": &t.since, "If-Unmodified-Since": &t.until} {
		text := string(h.Peek(prefix + name))
		if text == "" {
			continue
		}
		when, err := http.ParseTime(text)
		if err != nil {
			return t, invalid(strings.ToLower(prefix+name) + " is " + strconv.QuoteToASCII(text) + "; expected a date of HTTP.")
		}
		*at = &when
	}
	return t, nil
}

// check returns an error if a condition is not met. Times have whole seconds.
func (t tested) check(i *object.Info) error {
	modified := i.Modified.Truncate(time.Second)
	switch {
	case t.match != nil && unquoted(t.match) != "*" && unquoted(t.match) != i.ETag:
		return s3err.GetPreconditionFailedErr(s3err.ConditionIfMatch)
	case t.noneMatch != nil && (unquoted(t.noneMatch) == "*" || unquoted(t.noneMatch) == i.ETag):
		return s3err.GetPreconditionFailedErr(s3err.ConditionIfNoneMatch)
	case t.since != nil && !modified.After(*t.since), t.until != nil && modified.After(*t.until):
		return refusal(http.StatusPreconditionFailed, "PreconditionFailed",
			"At least one of the pre-conditions you specified did not hold")
	}
	return nil
}
