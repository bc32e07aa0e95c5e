// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
)

// Express holds the settings of directory buckets.
type Express struct {
	// Key is the key of sessions, of express.KeySize bytes. Sessions survive a restart if the key is the same.
	Key []byte
	// Zones are the zones that the names of new directory buckets may contain; empty means any zone.
	Zones []string
	// Session is the time for which a session is valid.
	Session time.Duration
}

// directories serves the requests for directory buckets. It verifies their signatures itself, because versitygw knows
// neither sessions nor the service s3express. It answers reads and writes of objects itself. Other
// requests it passes on to versitygw, with a new signature of the account that began the session.
type directories struct {
	s        *Server
	o        Express
	sessions *express.Keeper
	store    object.Directories
}

// newDirectories returns nil if there are no directory buckets.
func newDirectories(s *Server) (*directories, error) {
	if s.opts.Express == nil {
		return nil, nil
	}
	store, ok := s.opts.Store.(object.Directories)
	if !ok {
		return nil, errors.New("the store cannot append to objects and rename them")
	}
	sessions, err := express.NewKeeper(s.opts.Express.Key, time.Now)
	if err != nil {
		return nil, err
	}
	return &directories{s: s, o: *s.opts.Express, sessions: sessions, store: store}, nil
}

// asked is a request for a directory bucket, or for the list of them.
type asked struct {
	ctx         fiber.Ctx
	rctx        *fasthttp.RequestCtx
	bucket, key string
	at          level
	plain       bool // all arguments belong to the signature, or name the operation
	by          caller
}

// serve answers a request for a directory bucket. It returns false if versitygw has to answer, after a request for a
// directory bucket was prepared for versitygw.
func (d *directories) serve(ctx fiber.Ctx) (done bool, err error) {
	if d == nil {
		return false, nil
	}
	rctx := ctx.RequestCtx()
	bucket, key := splitPath(rctx)
	if !object.IsDirectory(bucket) {
		if bucket != "" || serviceOf(rctx) != express.Service {
			return false, nil
		}
		return true, d.listBuckets(ctx)
	}
	if rctx.IsOptions() {
		return true, answer(ctx, s3err.GetAPIError(s3err.ErrMethodNotAllowed))
	}
	a := &asked{ctx: ctx, rctx: rctx, bucket: bucket, key: key, at: onBucket, plain: plainArgs(rctx)}
	if key != "" {
		a.at = onObject
	}
	if err := d.admit(a); err != nil {
		return true, d.refuse(ctx, err)
	}
	handler := d.handlerOf(a)
	if handler == nil {
		if err := d.pass(a); err != nil {
			return true, d.refuse(ctx, err)
		}
		if zone, ok := object.ParseDirectory(bucket); ok && a.at == onBucket && rctx.IsHead() {
			rctx.Response.Header.Set("x-amz-bucket-location-type", "AvailabilityZone")
			rctx.Response.Header.Set("x-amz-bucket-location-name", zone)
		}
		return false, nil
	}
	return true, handler(a)
}

// admit checks the signature of a request, and what S3 does not support in directory buckets.
func (d *directories) admit(a *asked) error {
	var err error
	if a.by, err = d.authenticate(a); err != nil {
		return err
	}
	if why := unsupported(a); why != nil {
		return why
	}
	if err := a.expects(d.s.opts.Store); err != nil {
		return err
	}
	s := a.by.session
	if s == nil {
		return nil
	}
	if s.Bucket != a.bucket {
		return s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if s.Mode == express.ReadOnly && !a.rctx.IsGet() && !a.rctx.IsHead() {
		return refusal(http.StatusForbidden, "AccessDenied", "The session allows only reads.")
	}
	return d.sameBucket(a, s)
}

// expects refuses a request that expects another owner of the bucket.
func (a *asked) expects(buckets object.Buckets) error {
	owner := a.rctx.Request.Header.Peek("X-Amz-Expected-Bucket-Owner")
	if len(owner) == 0 {
		return nil
	}
	bk, err := buckets.Bucket(patient(a.rctx), a.bucket)
	if err == nil && bk.Owner != string(owner) {
		return s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	return nil // the operation itself finds that there is no bucket
}

// sameBucket refuses a session that was begun for an earlier bucket of the same name.
func (d *directories) sameBucket(a *asked, s *express.Session) error {
	bk, err := d.s.opts.Store.Bucket(patient(a.rctx), a.bucket)
	if err != nil {
		return nil // the operation itself finds that there is no bucket
	}
	if !begunFor(s, bk) {
		return refusal(http.StatusForbidden, "AccessDenied", "The session was begun for an earlier bucket of this name.")
	}
	return nil
}

// begunFor reports whether a session was begun for this bucket, or by its owner before it existed.
func begunFor(s *express.Session, bk *object.Bucket) bool {
	return s.Created == bk.Created.UnixMilli() || s.Created == 0 && bk.Owner == s.Account
}

// handlerOf returns the handler of a request that is not for versitygw.
func (d *directories) handlerOf(a *asked) func(*asked) error {
	args, r := a.rctx.QueryArgs(), a.rctx
	switch {
	case a.at == onBucket && r.IsGet() && args.Has("session"):
		return d.createSession
	case a.at == onBucket && r.IsPut() && a.plain:
		return d.createBucket
	case a.at == onBucket:
	case r.IsPut() && args.Has("renameObject"):
		return d.rename
	case !a.plain:
	case r.IsGet() || r.IsHead():
		return d.get
	case r.IsPut() && len(r.Request.Header.Peek("X-Amz-Copy-Source")) == 0:
		return d.put
	case r.IsDelete():
		return d.remove
	}
	return nil
}

// plainArgs reports whether all arguments belong to a signature, or name the operation.
func plainArgs(rctx *fasthttp.RequestCtx) bool {
	for k := range rctx.QueryArgs().All() {
		switch string(k) {
		case "x-id", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders",
			"X-Amz-Signature", "X-Amz-S3session-Token", "X-Amz-Content-Sha256", securityToken:
		default:
			return false
		}
	}
	return true
}

// pass prepares a request for versitygw: it gets a new signature of its account. versitygw checks the permission of the
// account as for any other bucket.
func (d *directories) pass(a *asked) error {
	h, args := &a.rctx.Request.Header, a.rctx.QueryArgs()
	for _, name := range []string{"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
		"X-Amz-SignedHeaders", "X-Amz-Signature", "X-Amz-S3session-Token", "X-Amz-Content-Sha256", securityToken} {
		args.Del(name)
	}
	h.Del(express.TokenHeader)
	h.Del(securityToken)
	if token := a.by.account.Token; token != "" {
		h.Set(securityToken, token) // versitygw checks it
	}
	h.Del("X-Amz-Storage-Class")
	switch form := string(h.Peek("X-Amz-Content-Sha256")); form {
	case express.SignedChunks, express.SignedTrailer:
		if err := a.decode(form); err != nil {
			return err
		}
	}
	if err := d.s.signAgain(a.rctx, a.by.account.AccessKey, a.by.account.Secret); err != nil {
		return err
	}
	return nil
}

// refuse replies with an error.
func (d *directories) refuse(ctx fiber.Ctx, err error) error {
	var known s3err.S3Error
	var ours *express.Refusal
	switch {
	case errors.As(err, &known):
		return answer(ctx, known)
	case errors.As(err, &ours):
		return answer(ctx, refusal(ours.Status, ours.Code, ours.Message))
	}
	return d.s.fail(ctx, err)
}

// serviceOf returns the service for which a request is signed.
func serviceOf(rctx *fasthttp.RequestCtx) string {
	return express.ServiceOf(string(rctx.Request.Header.Peek("Authorization")),
		string(rctx.QueryArgs().Peek("X-Amz-Credential")))
}

// noArgs are the sub-resources that S3 does not have for directory buckets and their objects.
var noArgs = setOf("accelerate", "acl", "analytics", "cors", "intelligent-tiering", "inventory", "legal-hold",
	"location",
	"logging", "metrics", "notification", "object-lock", "ownershipControls", "policyStatus", "publicAccessBlock",
	"replication", "requestPayment", "restore", "retention", "select", "tagging", "torrent", "versioning", "versions",
	"website")

// noHeaders are the headers of features that S3 does not have for directory buckets.
var noHeaders = map[string]string{
	"x-amz-tagging": "object tags", "x-amz-website-redirect-location": "websites", "x-amz-mfa": "deletion with MFA",
	"x-amz-request-payer": "requester pays", "x-amz-bypass-governance-retention": "object lock",
}

// unsupported returns the error for what S3 does not support in directory buckets.
func unsupported(a *asked) error {
	var why error
	for k, v := range a.rctx.Request.Header.All() {
		if len(k) < 6 || k[0] != 'X' && k[0] != 'x' || why != nil || len(v) == 0 {
			continue
		}
		name := strings.ToLower(string(k))
		what := noHeaders[name]
		switch {
		case name == "x-amz-acl" && string(v) != "bucket-owner-full-control", strings.HasPrefix(name, "x-amz-grant-"):
			what = "ACLs"
		case strings.HasPrefix(name, "x-amz-object-lock-"), name == "x-amz-bucket-object-lock-enabled" && string(v) == "true":
			what = "object lock"
		case strings.HasPrefix(name, "x-amz-server-side-encryption"), strings.Contains(name, "encryption-customer"):
			what = "encryption at rest"
		case name == "x-amz-storage-class" && string(v) != "EXPRESS_ONEZONE":
			why = refusal(http.StatusBadRequest, "InvalidStorageClass",
				"The storage class you specified is not valid. Directory buckets have EXPRESS_ONEZONE alone.")
		}
		if what != "" {
			why = notImplemented(name, what+" in directory buckets")
		}
	}
	if why != nil || a.plain {
		return why
	}
	for k, v := range a.rctx.QueryArgs().All() {
		name := string(k)
		if _, bad := noArgs[name]; bad {
			return refusal(http.StatusMethodNotAllowed, "MethodNotAllowed",
				"The specified method is not allowed against this resource: directory buckets have no "+name+".")
		}
		if name == "versionId" && len(v) > 0 && string(v) != object.NullVersion {
			return invalid("Directory buckets have no versions. The version is null, or not given.")
		}
	}
	if a.at == onBucket && a.rctx.IsGet() {
		return listable(a)
	}
	return nil
}

// listable refuses a listing that S3 does not offer for directory buckets.
func listable(a *asked) error {
	args := a.rctx.QueryArgs()
	list := args.Has("list-type")
	if !list && !args.Has("uploads") {
		for _, name := range []string{"policy", "encryption", "lifecycle", "session"} {
			if args.Has(name) {
				return nil
			}
		}
		return notImplemented("list-type", "ListObjects in directory buckets; use ListObjectsV2")
	}
	prefix, delimiter := string(args.Peek("prefix")), string(args.Peek("delimiter"))
	switch {
	case delimiter != "" && delimiter != "/":
		return invalid("Directory buckets have / as the only delimiter.")
	case prefix != "" && !strings.HasSuffix(prefix, "/"):
		return invalid("In directory buckets, a prefix ends in /.")
	case args.Has("start-after") && len(args.Peek("start-after")) > 0:
		return notImplemented("start-after", "listing from a key on in directory buckets")
	case args.Has("fetch-owner") && string(args.Peek("fetch-owner")) == "true":
		return notImplemented("fetch-owner", "owners in listings of directory buckets")
	}
	return nil
}

// NewSessionKey returns a random key for Express.Key.
func NewSessionKey() []byte { return express.NewKey() }
