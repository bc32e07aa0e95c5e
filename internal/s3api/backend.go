// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// backend is the store as versitygw asks for it. What it does not override
// (object ACLs, S3 Select, restore from an archive) answers NotImplemented.
//
// Every string that comes in is cloned before the store sees it: it may point
// into a request's buffer, which the next request of the connection overwrites.
type backend struct {
	vgwbackend.BackendUnsupported
	store    object.Store
	accounts *iam.Service
	etag     func(string) object.ETagKind
	log      *slog.Logger
	rules    sync.Map // of *rules, by the bucket's name
}

var _ vgwbackend.Backend = (*backend)(nil)

func newBackend(o Options) *backend {
	return &backend{store: o.Store, accounts: o.Accounts, etag: o.ETag, log: o.Log}
}

func (b *backend) String() string { return "NebulaIO" }

// detached is the context of a request without its end: fasthttp's ends for all
// requests at once when a drain begins, which is there to let them finish. A client
// that goes away shows in its connection.
type detached struct{ *fasthttp.RequestCtx }

func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// patient returns the context that the store is asked with.
func patient(ctx context.Context) context.Context {
	if r, ok := ctx.(*fasthttp.RequestCtx); ok {
		return detached{r}
	}
	return ctx
}

// own returns a string of our own for one of a request; nil is "".
func own(s *string) string {
	if s == nil {
		return ""
	}
	return strings.Clone(*s)
}

func ptr[T any](v T) *T { return &v }

// some returns a pointer to s, or nil for "".
func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// quoted returns an ETag as HTTP shows it.
func quoted(etag string) string { return `"` + etag + `"` }

func unquoted(etag *string) string { return strings.Trim(own(etag), `"`) }

// bucketOf returns a bucket's settings, which are shared and in memory.
func (b *backend) bucketOf(ctx context.Context, name string) (*object.Bucket, error) {
	bk, err := b.store.Bucket(patient(ctx), name)
	if err != nil {
		return nil, b.s3Error("Bucket", object.Ref{Bucket: strings.Clone(name)}, err)
	}
	return bk, nil
}

// refOf returns the version that a request names, with strings of our own.
func refOf(bucket, key, version *string) object.Ref {
	return object.Ref{Bucket: own(bucket), Key: reveal(own(key)), Version: own(version)}
}

func checkKey(key string) error {
	if len(key) > object.MaxKey {
		return s3err.GetKeyTooLongErr(int64(len(key)), object.MaxKey)
	}
	if !utf8.ValidString(key) {
		return invalid("The key " + strconv.QuoteToASCII(key) + " is no UTF-8.")
	}
	return nil
}

func accountOf(ctx context.Context, key string) auth.Account {
	a, _ := ctx.Value(key).(auth.Account)
	return a
}

// shownVersion is the version identifier of a reply: none for a bucket that
// never had versions, whose only version is the null one.
func shownVersion(bk *object.Bucket, version string) string {
	if version == object.NullVersion && bk.Versioning == object.VersioningOff {
		return ""
	}
	return version
}
