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

// backend implements versitygw's Backend on the store. Methods that it does not override, such as restore from an
// archive, return NotImplemented.
//
// backend clones every string of a request before it passes the string to the store. The string may point into a
// buffer that the connection's next request overwrites.
type backend struct {
	vgwbackend.BackendUnsupported
	store        object.Store
	accounts     *iam.Service
	iam          accounts // the same accounts for versitygw
	etag         func(string) object.ETagKind
	log          *slog.Logger
	eventTargets map[string]string // types of event targets by name
	flushLog     func(bucket string)
	region       string
	logs         sync.Map // holds *logTarget by bucket name
	rules        sync.Map // holds *policy.Rules by bucket name
	// replications holds *replicationRules by bucket name.
	replications sync.Map
	targets      []string // that replication rules may name
	// lifecycles holds *lifecycleRules by bucket name.
	lifecycles sync.Map

	encrypter object.Encrypter // the store; nil if the store cannot encrypt
}

var _ vgwbackend.Backend = (*backend)(nil)

func newBackend(o Options) *backend {
	b := &backend{store: o.Store, accounts: o.Accounts, etag: o.ETag, log: o.Log, targets: o.ReplicationTargets,
		eventTargets: o.EventTargets, flushLog: o.FlushLog, encrypter: encrypterOf(o.Store), region: o.Region}
	b.iam = accounts{o.Accounts, b}
	return b
}

func (b *backend) String() string { return "NebulaIO" }

// detached is the context of a request that never ends. fasthttp's context ends for all requests when a drain
// begins, although the drain should let them finish. If a client disconnects, reads and writes on its connection
// fail.
type detached struct{ *fasthttp.RequestCtx }

func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// patient returns the context for calls of the store.
func patient(ctx context.Context) context.Context {
	if r, ok := ctx.(*fasthttp.RequestCtx); ok {
		return detached{r}
	}
	return ctx
}

// own returns a clone of a request's string, or "" for nil.
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

// quoted returns an ETag in quotes, as in HTTP headers.
func quoted(etag string) string { return `"` + etag + `"` }

func unquoted(etag *string) string { return strings.Trim(own(etag), `"`) }

// bucketOf returns the settings of a bucket from memory. They are shared and must not be changed.
func (b *backend) bucketOf(ctx context.Context, name string) (*object.Bucket, error) {
	bk, err := b.store.Bucket(patient(ctx), name)
	if err != nil {
		return nil, b.s3Error("Bucket", object.Ref{Bucket: strings.Clone(name)}, err)
	}
	return bk, nil
}

// refOf returns the object and version that a request names, with cloned strings.
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

// shownVersion returns the version identifier for a reply. It returns "" for a bucket that never had versioning
// enabled, and if an upstream did not name the version.
func shownVersion(bk *object.Bucket, info *object.Info) string {
	hidden := bk.Versioning == object.VersioningOff
	if bk.OnUpstream() {
		hidden = info.Unnamed
	}
	if info.Version == object.NullVersion && hidden {
		return ""
	}
	return info.Version
}
