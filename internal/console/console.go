// SPDX-License-Identifier: Apache-2.0

// Package console serves the web console: its pages, and the JSON API below /console/api/ that the pages use.
//
// A user logs in with access keys. Requests about buckets and objects go to the S3 front end in the user's name, so the
// same policies decide. Pages about the whole server are for accounts with the role admin.
package console

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/console/inside"
	"github.com/nebulaio/nebulaio/internal/console/machine"
	"github.com/nebulaio/nebulaio/internal/console/rates"
	"github.com/nebulaio/nebulaio/internal/console/session"
	"github.com/nebulaio/nebulaio/internal/console/transfers"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Path is the path below which the console is served.
const Path = "/console/"

// api is the path of the JSON API.
const api = Path + "api/"

// Options hold what the console needs before the server has opened its store.
type Options struct {
	Config  *config.Config
	Version string
	// Pages are the files of the pages, with index.html at the root. If Pages is nil, only the API is served.
	Pages fs.FS
	// Exposed reports whether other machines can reach the console's address.
	Exposed bool
	// Host is the name of this machine, under which the console may be reached.
	Host string
	// Log receives log ins and refused log ins. If Log is nil, nothing is logged.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Parts are the parts of a server that has opened its store.
type Parts struct {
	// Context ends with the server.
	Context context.Context //nolint:containedctx // it is the lifetime of the server, not of a call
	// Endpoint is the URL of the S3 address.
	Endpoint *url.URL
	Accounts *iam.Service
	// S3 sends requests to the S3 front end.
	S3 *inside.Caller
	// Judge decides what an account may see in lists. The S3 front end decides about every request itself.
	Judge object.Authorizer
	// Buckets lists all buckets.
	Buckets   func(context.Context) ([]object.Bucket, error)
	Admin     Admin
	Transfers *transfers.Ring
	Rates     *rates.Sampler
	Machine   *machine.Machine
	Status    Status
	// CheckPolicy returns what is wrong with the text of a bucket's policy, or nil.
	CheckPolicy func(text []byte, bucket string) error
}

// Admin administers accounts, as the administration socket does.
type Admin interface {
	// AddUser adds an account. AddUser fails with iam.ErrAccountExists if the access key is in use.
	AddUser(ctx context.Context, a iam.Account) error
	// UpdateUser changes the secret or the role of an account. UpdateUser fails with iam.ErrNoSuchAccount if the
	// account does not exist.
	UpdateUser(ctx context.Context, accessKey string, c iam.Change) error
	// RemoveUser removes an account and its grants. RemoveUser fails with iam.ErrNoSuchAccount if there is none.
	RemoveUser(ctx context.Context, accessKey string) error
	// Grant gives an account access to a bucket, and reports whether the bucket's policy changed.
	Grant(ctx context.Context, g iam.Grant) (changed bool, err error)
	// Revoke removes grants of an account in a bucket; a nil prefix means all of them.
	Revoke(ctx context.Context, bucket, accessKey string, prefix *string) (changed bool, err error)
	// Rights returns the buckets that an account can use.
	Rights(ctx context.Context, accessKey string) (Rights, error)
}

// Rights are the buckets that an account can use.
type Rights struct {
	Owns   []string    `json:"owns"`
	Grants []iam.Grant `json:"grants"`
	// Policies lists the buckets whose policies name the account or everybody in statements that are not grants.
	Policies []string `json:"policies"`
}

// Console serves the pages and the API. A Console is safe for concurrent use.
type Console struct {
	opts     Options
	started  time.Time
	parts    atomic.Pointer[attached]
	handler  http.Handler
	streams  atomic.Int64
	previews chan struct{} // one entry for each preview in progress
}

// attached are the parts of the server with the sessions of its accounts.
type attached struct {
	Parts
	sessions *session.Table
}

// New returns a Console. Until Attach is called, the API answers that the server is not ready.
func New(o Options) *Console {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Console{opts: o, started: o.Now(), previews: make(chan struct{}, mostPreviews)}
	mux := http.NewServeMux()
	c.routes(mux)
	mux.Handle(api, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "NoSuchRoute", "the API has no such route or method", "reload the page")
	}))
	mux.Handle(Path, c.pages())
	c.handler = c.secured(mux)
	return c
}

// Attach lets the API answer. The caller calls Attach once, when the server is ready.
func (c *Console) Attach(p Parts) {
	c.parts.Store(&attached{Parts: p, sessions: session.New(p.Accounts, c.opts.Now)})
}

// ServeHTTP serves a request below Path.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// call is one request of a user who is logged in.
type call struct {
	*Console
	*attached
	user  session.Session
	token string
	w     http.ResponseWriter
	r     *http.Request
}

// as returns the user in whose name requests to the S3 front end are sent.
func (c *call) as() inside.As { return inside.As{Account: c.user.Account, From: clientAddr(c.r)} }

// admin reports whether the user may see the whole server. Keys with a session policy may not, because the pages of
// administrators do not ask policies.
func (c *call) admin() bool {
	return c.user.Account.Role == iam.RoleAdmin && c.user.Account.SessionPolicy == ""
}

// owns reports whether the user owns a bucket, and may do everything there. What keys with a session policy may do is
// for the policies to decide.
func (c *call) owns(b *object.Bucket) bool {
	return b.Owner == c.user.Account.User() && c.user.Account.SessionPolicy == ""
}

// query returns a parameter of the request's query.
func (c *call) query(name string) string { return c.r.URL.Query().Get(name) }

// Pages are requests of one group of routes.
type (
	bucketPage  struct{ *call } // buckets and their settings
	objectPage  struct{ *call } // lists, descriptions, versions, deletions and links of objects
	contentPage struct{ *call } // downloads and uploads
	accountPage struct{ *call } // sessions and accounts
	serverPage  struct{ *call } // the whole server
)

// on returns the handler of a route for a page.
func on[P ~struct{ *call }](h func(P) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) { return h(P{c}) }
}

// routes adds the routes of the API.
func (c *Console) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+api+"session", c.logIn)
	anybody := func(pattern string, h func(*call) (any, error)) { mux.HandleFunc(at(pattern), c.handle(h, false)) }
	admins := func(pattern string, h func(*call) (any, error)) { mux.HandleFunc(at(pattern), c.handle(h, true)) }
	anybody("GET session", on(accountPage.session))
	anybody("DELETE session", on(accountPage.logOut))
	anybody("GET overview", on(serverPage.overview))
	anybody("GET live", on(serverPage.live))
	anybody("GET rates", on(serverPage.rates))
	bucketRoutes(anybody)
	objectRoutes(anybody)
	anybody("GET transfers", on(serverPage.transfers))

	admins("GET users", on(accountPage.users))
	admins("POST users", on(accountPage.addUser))
	admins("GET users/{key}", on(accountPage.showUser))
	admins("PATCH users/{key}", on(accountPage.changeUser))
	admins("DELETE users/{key}", on(accountPage.removeUser))
	admins("POST grants", on(accountPage.grant))
	admins("POST revoke", on(accountPage.revoke))
	admins("GET machine", on(serverPage.machine))
	admins("POST machine/diagnose", on(serverPage.diagnose))
	admins("GET machine/fix", on(serverPage.fixScript))
	admins("GET benchmarks", on(serverPage.benchmarks))
	admins("GET benchmarks/{id}", on(serverPage.benchmark))
	admins("GET benchmarks-compare", on(serverPage.compareBenchmarks))
	admins("GET cluster", on(serverPage.cluster))
	admins("GET config", on(serverPage.config))
}

func bucketRoutes(add func(string, func(*call) (any, error))) {
	add("GET buckets", on(bucketPage.buckets))
	add("POST buckets", on(bucketPage.makeBucket))
	add("GET buckets/{bucket}", on(bucketPage.bucket))
	add("DELETE buckets/{bucket}", on(bucketPage.removeBucket))
	add("PUT buckets/{bucket}/versioning", on(bucketPage.setVersioning))
	add("PUT buckets/{bucket}/tags", on(bucketPage.setBucketTags))
	add("PUT buckets/{bucket}/policy", on(bucketPage.setPolicy))
	add("DELETE buckets/{bucket}/policy", on(bucketPage.removePolicy))
	add("POST buckets/{bucket}/policy/validate", on(bucketPage.validatePolicy))
}

func objectRoutes(add func(string, func(*call) (any, error))) {
	add("GET buckets/{bucket}/objects", on(objectPage.objects))
	add("GET buckets/{bucket}/versions", on(objectPage.versions))
	add("GET buckets/{bucket}/object", on(objectPage.object))
	add("DELETE buckets/{bucket}/object", on(objectPage.remove))
	add("PUT buckets/{bucket}/object/tags", on(objectPage.setTags))
	add("GET buckets/{bucket}/content", on(contentPage.download))
	add("PUT buckets/{bucket}/content", on(contentPage.upload))
	add("POST buckets/{bucket}/delete", on(objectPage.removeMany))
	add("POST buckets/{bucket}/undelete", on(objectPage.undelete))
	add("POST buckets/{bucket}/restore", on(objectPage.restore))
	add("POST buckets/{bucket}/share", on(objectPage.share))
	add("GET buckets/{bucket}/preview", on(objectPage.preview))
	add("GET buckets/{bucket}/uploads", on(contentPage.uploads))
	add("POST buckets/{bucket}/uploads", on(contentPage.beginUpload))
	add("DELETE buckets/{bucket}/upload", on(contentPage.abortUpload))
	add("GET buckets/{bucket}/parts", on(contentPage.parts))
	add("PUT buckets/{bucket}/part", on(contentPage.putPart))
	add("POST buckets/{bucket}/complete", on(contentPage.completeUpload))
}
