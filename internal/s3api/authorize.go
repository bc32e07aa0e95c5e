// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/acl"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// authorizer decides whether requests at the GPUDirect door are allowed. versitygw evaluates only HTTP requests, so
// authorizer makes an HTTP request of the same account from this host. In that request, the client's address is
// 127.0.0.1, and there is no TLS. So the door never allows more than S3 allows a client on this host.
type authorizer struct {
	backend  *backend
	app      *fiber.App
	accounts *iam.Service
	readOnly bool
	requests sync.Pool // holds *fasthttp.RequestCtx
	buckets  sync.Map  // holds *judged by bucket name
}

// judged caches decisions for the settings of a bucket. Settings are replaced and never changed, so the cache is
// valid while the bucket has these settings.
type judged struct {
	of *object.Bucket
	// generation is that of the accounts: a change of a user, a group or a policy changes decisions.
	generation uint64
	// plain reports that the settings give the same decision for all keys, addresses and times, so that decisions
	// can be cached.
	plain   bool
	mu      sync.RWMutex
	allowed map[allowance]struct{}
}

// allowance is an allowed action of an account in a bucket with plain settings.
type allowance struct {
	access string
	role   iam.Role
	action object.Action
}

// mostAllowances is the largest number of cached decisions of a bucket.
const mostAllowances = 1024

func (j *judged) allows(x allowance) bool {
	j.mu.RLock()
	defer j.mu.RUnlock()
	_, ok := j.allowed[x]
	return ok
}

func (j *judged) allow(x allowance) {
	if !j.plain {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.allowed) < mostAllowances {
		j.allowed[x] = struct{}{}
	}
}

// Authorizer returns the object.Authorizer that decides whether requests at the GPUDirect door are allowed. The
// Authorizer decides as if each request were an S3 request from this host. The Authorizer is safe for concurrent use
// while the store is open. If the action of a request is object.ActionList, the field Key of object.Access holds the
// prefix of the listing.
func (s *Server) Authorizer() object.Authorizer { return s.authorizer }

func newAuthorizer(o Options, b *backend, app *fiber.App) *authorizer {
	a := &authorizer{backend: b, app: app, accounts: o.Accounts, readOnly: o.ReadOnly}
	a.requests.New = func() any {
		r := &fasthttp.RequestCtx{}
		r.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil)
		return r
	}
	return a
}

// Authorize implements object.Authorizer.
func (a *authorizer) Authorize(ctx context.Context, x object.Access) error {
	const op = "authorize"
	name := x.Bucket + "/" + x.Key
	permission, method, onKey := auth.PermissionRead, fasthttp.MethodGet, true
	switch x.Action {
	case object.ActionGet, object.ActionGetVersion:
	case object.ActionPut:
		permission, method = auth.PermissionWrite, fasthttp.MethodPut
	case object.ActionDelete:
		permission, method = auth.PermissionWrite, fasthttp.MethodDelete
	case object.ActionList:
		onKey = false
	default:
		return errs.New(errs.Invalid, op, name, fmt.Sprintf("action %q, expected one of those that doors ask for", x.Action))
	}
	if onKey && x.Key == "" {
		return object.Fail(op, name, object.ErrInvalidName, "no key is named")
	}
	if x.Action == object.ActionPut && !utf8.ValidString(x.Key) {
		// An HTTP request could neither read nor list such an object. Objects that older versions wrote can be
		// read.
		return object.Fail(op, x.Bucket, object.ErrInvalidName, "the key is no UTF-8")
	}
	settings, err := a.settingsOf(ctx, op, x.Bucket)
	if err != nil {
		return err
	}
	account, err := a.accounts.Get(x.Account)
	if err != nil {
		return denied(op, name, fmt.Sprintf("account %q is not known here", x.Account), err)
	}
	if a.readOnly && permission == auth.PermissionWrite {
		return denied(op, name, "the server is read-only", nil)
	}
	root := account.AccessKey == a.accounts.Root().AccessKey
	locked := x.Action == object.ActionPut && lockEnabled(settings.of)
	use := bucketUse
	if x.Action == object.ActionGet || x.Action == object.ActionGetVersion {
		use = readUse
	}
	// If objects have ACLs, each object may have another one.
	same := use == bucketUse || !objectsHaveACLs(settings.of)
	may := allowance{account.AccessKey, account.Role, x.Action}
	if !locked && (root || same && settings.allows(may)) {
		return nil // versitygw would decide the same
	}
	rctx := a.requests.Get().(*fasthttp.RequestCtx)
	defer func() {
		rctx.ResetUserValues()
		rctx.Request.Reset()
		a.requests.Put(rctx)
	}()
	rctx.Request.Header.SetMethod(method)
	rctx.SetUserValue(string(utils.ContextKeyAccount), toAuth(account))
	ref := object.Ref{Bucket: x.Bucket, Key: x.Key, Version: x.Version}
	rctx.SetUserValue(targetKey, target{ref, use})
	list, err := a.backend.effectiveACL(ctx, settings.of, ref, acl.Requester{Access: toAuth(account).Access}, use)
	if err != nil {
		return a.refusal(op, name, x, err)
	}
	opts := auth.AccessOptions{
		Acl: list, AclPermission: permission, IsRoot: root, Acc: toAuth(account), Bucket: x.Bucket,
		Actions: []auth.Action{auth.Action(x.Action)}, Readonly: a.readOnly, Iam: a.backend.iam,
	}
	if onKey {
		opts.Object = hide(x.Key)
		if x.Version != "" {
			rctx.QueryArgs().Set("versionId", x.Version)
		}
	} else {
		for name, value := range map[string]string{"prefix": x.Key, "delimiter": x.Delimiter, "max-keys": limit(x.Limit)} {
			if value != "" {
				rctx.QueryArgs().Set(name, value)
			}
		}
	}
	request := a.app.AcquireCtx(rctx)
	defer a.app.ReleaseCtx(request)
	err = auth.VerifyAccess(request, a.backend, opts)
	if x, gone := a.accounts.Subject(account.AccessKey); err == nil && same && gone == nil && x.Uniform() {
		settings.allow(may)
	}
	if err == nil && locked {
		// In a bucket without old versions, a write replaces an object, and a lock may forbid that.
		err = auth.CheckObjectAccess(request, x.Bucket, opts.Acc, []types.ObjectIdentifier{{Key: &opts.Object}},
			auth.BypassOverwrite, false, a.backend, opts.Iam, true)
	}
	return a.refusal(op, name, x, err)
}

// limit returns a number of entries as a query argument.
func limit(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// settingsOf returns the cached decisions for the current settings of a bucket.
func (a *authorizer) settingsOf(ctx context.Context, op, bucket string) (*judged, error) {
	bk, err := a.backend.store.Bucket(ctx, bucket)
	if err != nil {
		if errors.Is(err, object.ErrNoSuchBucket) {
			a.buckets.Delete(bucket)
		}
		return nil, errs.Wrap(op, bucket, err)
	}
	now := a.accounts.Generation()
	if known, ok := a.buckets.Load(bucket); ok && known.(*judged).of == bk && known.(*judged).generation == now {
		return known.(*judged), nil
	}
	r := a.backend.rulesOf(bk)
	if r.ACLFault != nil {
		return nil, errs.Wrap(op, bucket, r.ACLFault)
	}
	j := &judged{of: bk, generation: now, plain: r.Uniform(), allowed: map[allowance]struct{}{}}
	a.buckets.Store(bk.Name, j)
	return j, nil
}

// refusal converts an error of versitygw to one of our errors.
func (a *authorizer) refusal(op, name string, x object.Access, err error) error {
	if err == nil {
		return nil
	}
	var known s3err.S3Error
	switch {
	case errors.Is(err, s3err.GetAPIError(s3err.ErrNoSuchBucket)):
		return object.Fail(op, x.Bucket, object.ErrNoSuchBucket, "it was deleted meanwhile")
	case errors.As(err, &known) && known.StatusCode() == http.StatusForbidden:
		return denied(op, name, fmt.Sprintf("account %q may not do %s here", x.Account, x.Action), plainly{known})
	case known != nil:
		return errs.Wrap(op, name, plainly{known})
	}
	return errs.Wrap(op, name, err)
}

// plainly is an error of versitygw with a plain text. The error's own text is an XML document.
type plainly struct{ s3err.S3Error }

// Error returns the description of the S3 error as plain text.
func (e plainly) Error() string {
	return strings.TrimSuffix(policy.RestoreMessage(e.BaseError().Description), ".")
}

// Unwrap returns the underlying S3 error, a value of the S3 library versitygw.
func (e plainly) Unwrap() error { return e.S3Error }

func denied(op, name, msg string, cause error) error {
	return &errs.Error{Kind: errs.Permission, Op: op, Name: name, Msg: msg, Err: cause,
		Fix: "ask the bucket's owner for a policy or an ACL that allows it, or the operator for a policy of your user"}
}
