// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3api/utils"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/oidc"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
	"github.com/nebulaio/nebulaio/internal/s3api/sts"
)

// STS holds the settings of temporary keys.
type STS struct {
	// MaxDuration is the longest time for which temporary keys are valid.
	MaxDuration time.Duration
	// MaxSessions is the largest number of temporary keys at a time.
	MaxSessions int
	// Providers verifies the tokens of AssumeRoleWithWebIdentity. If Providers is nil, every token is refused.
	Providers *oidc.Providers
}

// mostVerifications is the largest number of tokens that are verified at a time. Anybody can send tokens, and their
// verification may wait for an issuer.
const mostVerifications = 64

// tokenService answers the requests of clients for temporary keys, as the Security Token Service of AWS does. The
// requests are forms that are posted to the path /, where S3 has no operation.
type tokenService struct {
	s         *Server
	o         STS
	verifying chan struct{}
}

func newTokenService(s *Server) *tokenService {
	if s.opts.STS == nil {
		return nil
	}
	return &tokenService{s: s, o: *s.opts.STS, verifying: make(chan struct{}, mostVerifications)}
}

// asked reports whether a request is for the service. In a virtual-hosted request, the path / is a bucket.
func (t *tokenService) asked(rctx *fasthttp.RequestCtx) bool {
	const form = "application/x-www-form-urlencoded"
	if t == nil || !rctx.IsPost() || string(rctx.URI().PathOriginal()) != "/" {
		return false
	}
	kind, _, _ := bytes.Cut(rctx.Request.Header.ContentType(), []byte(";"))
	return strings.EqualFold(string(bytes.TrimSpace(kind)), form)
}

// serve answers a request.
func (t *tokenService) serve(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	rctx.SetUserValue(operationKey, "STS")
	requestID, _ := utils.EnsureRequestIDs(ctx)
	h := &rctx.Response.Header
	h.SetContentType("text/xml")
	h.Set("Cache-Control", "no-store")
	action, reply, err := t.answer(rctx)
	var text []byte
	if err == nil {
		text, err = sts.Reply(action, requestID, reply)
	}
	if err == nil {
		return ctx.Send(text)
	}
	var known *sts.Refusal
	var unsigned *express.Refusal
	switch {
	case errors.As(err, &known):
	case errors.As(err, &unsigned):
		known = &sts.Refusal{Status: unsigned.Status, Code: unsigned.Code, Message: unsigned.Message}
	default:
		t.s.opts.Log.Error("the request failed", "operation", action, "error", err)
		known = sts.Refuse(http.StatusInternalServerError, "InternalFailure", "The server could not answer the request.")
	}
	rctx.SetUserValue(errorKey, refusal(known.Status, known.Code, known.Message))
	return ctx.Status(known.Status).Send(known.XML(requestID))
}

// answer returns the action of a request and its answer.
func (t *tokenService) answer(rctx *fasthttp.RequestCtx) (action string, answer any, err error) {
	body, err := t.body(rctx)
	if err != nil {
		return "", nil, err
	}
	r, err := sts.Parse(body)
	if err != nil {
		return "", nil, err
	}
	rctx.SetUserValue(operationKey, r.Action)
	if r.Action == sts.AssumeRoleWithWebIdentity {
		answer, err = t.byToken(patient(rctx), rctx, r)
		return r.Action, answer, err
	}
	caller, err := t.caller(rctx, body)
	if err != nil {
		return r.Action, nil, err
	}
	rctx.SetUserValue(accountKey, caller.AccessKey)
	if r.Action == sts.GetCallerIdentity {
		return r.Action, t.identity(caller), nil
	}
	answer, err = t.byUser(patient(rctx), caller, r)
	return r.Action, answer, err
}

// body reads the form.
func (t *tokenService) body(rctx *fasthttp.RequestCtx) ([]byte, error) {
	if t.s.crowd.full() {
		return nil, sts.Refuse(http.StatusServiceUnavailable, "Throttling", "The server has too many requests.")
	}
	n := rctx.Request.Header.ContentLength()
	if n == chunked || n > sts.MaxBody {
		rctx.SetConnectionClose()
		return nil, sts.Refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge",
			"The body has to have a Content-Length of at most %d bytes.", sts.MaxBody)
	}
	_ = netConn(rctx).SetReadDeadline(time.Now().Add(t.s.opts.Limits.Header)) // a closed connection fails at the read
	return rctx.Request.Body(), nil
}

// caller returns the account that has signed a request.
func (t *tokenService) caller(rctx *fasthttp.RequestCtx, body []byte) (iam.Account, error) {
	h := &rctx.Request.Header
	authorization := string(h.Peek("Authorization"))
	if authorization == "" {
		return iam.Account{}, sts.Refuse(http.StatusForbidden, "MissingAuthenticationToken",
			"The request is not signed. Only %s needs no signature.", sts.AssumeRoleWithWebIdentity)
	}
	date := h.Peek("X-Amz-Date")
	if len(date) == 0 {
		date = h.Peek("Date")
	}
	s, err := express.ParseHeader(authorization, string(date), "")
	if err != nil {
		return iam.Account{}, err
	}
	// Some clients do not know a region yet, and sign for the default region or for none.
	if s.Service != sts.Service || s.Region != t.s.opts.Region && s.Region != "us-east-1" && s.Region != "" {
		return iam.Account{}, sts.Refuse(http.StatusForbidden, "SignatureDoesNotMatch",
			"The request is signed for the service %.32q and the region %.64q; expected %q and %q.", s.Service, s.Region,
			sts.Service, t.s.opts.Region)
	}
	if err := s.CheckTime(time.Now()); err != nil {
		return iam.Account{}, err
	}
	token := string(h.Peek(securityToken))
	account, err := t.s.opts.Accounts.Get(s.Access)
	if err != nil {
		return account, refusedCaller(err, token)
	}
	sum := sha256.Sum256(body)
	request := requestOf(rctx, hex.EncodeToString(sum[:]))
	if err := s.Verify(request, express.DeriveKey(account.Secret, s.Day, s.Region, s.Service)); err != nil {
		return iam.Account{}, err
	}
	if account, err = t.s.opts.Accounts.Authentic(s.Access, token); err != nil {
		return account, refusedCaller(err, token)
	}
	return account, nil
}

// refusedCaller returns the error for an access key that cannot be used with a token.
func refusedCaller(err error, token string) error {
	if errors.Is(err, iam.ErrExpired) && token != "" {
		return sts.Refuse(http.StatusForbidden, "ExpiredToken", "The security token included in the request is expired.")
	}
	return sts.Refuse(http.StatusForbidden, "InvalidClientTokenId",
		"The security token included in the request is invalid.")
}

// identity describes the caller.
func (t *tokenService) identity(a iam.Account) sts.Caller {
	c := sts.Caller{Number: sts.Account, UserID: a.User()}
	role, name, session := strings.Cut(a.Description, "/")
	switch {
	case a.Token != "" && session:
		c.ARN, c.UserID = sts.ARN(role, name), a.AccessKey+":"+name
	case a.User() == t.s.opts.Accounts.Root().AccessKey:
		c.ARN = "arn:aws:iam::" + sts.Account + ":root"
	default:
		c.ARN = "arn:aws:iam::" + sts.Account + ":user/" + a.User()
	}
	return c
}

// byUser answers AssumeRole: the session has the rights of the caller, as far as the session policy allows them. The
// role names the session and gives no rights.
func (t *tokenService) byUser(ctx context.Context, caller iam.Account, r *sts.Request) (sts.Session, error) {
	if caller.Derived() {
		return sts.Session{}, sts.Refuse(http.StatusForbidden, "AccessDenied",
			"The keys belong to a session or to a service account, which cannot begin a session. Use the keys of a user.")
	}
	subject, err := t.s.opts.Accounts.Subject(caller.AccessKey)
	if err != nil {
		return sts.Session{}, err
	}
	if subject.Decide(&document.Request{Action: "sts:AssumeRole", Resource: "*"}).Denied() {
		return sts.Session{}, sts.Refuse(http.StatusForbidden, "AccessDenied", "A policy denies sts:AssumeRole to %s.",
			caller.AccessKey)
	}
	if r.Role == "" {
		r.Role = caller.AccessKey
	}
	return t.begin(ctx, r, iam.Account{Parent: caller.AccessKey})
}

// byToken answers AssumeRoleWithWebIdentity: the session has the policies that the token and the settings of its
// provider name.
func (t *tokenService) byToken(ctx context.Context, rctx *fasthttp.RequestCtx, r *sts.Request) (sts.Session, error) {
	if t.o.Providers == nil || t.o.Providers.Len() == 0 {
		return sts.Session{}, sts.Refuse(http.StatusBadRequest, "InvalidIdentityToken",
			"This server has no OpenID Connect provider. The operator sets one with oidc.PROVIDER.issuer.")
	}
	select {
	case t.verifying <- struct{}{}:
		defer func() { <-t.verifying }()
	default:
		return sts.Session{}, sts.Refuse(http.StatusServiceUnavailable, "Throttling", "Too many tokens are being verified.")
	}
	id, err := t.o.Providers.Verify(ctx, r.Token)
	if err != nil {
		t.s.opts.Log.Info("refused a token", "remote", rctx.RemoteAddr().String(), "reason", errs.MessageOf(err))
		return sts.Session{}, refusedToken(err)
	}
	a := iam.Account{Parent: federated(id.Provider, id.Subject), Claims: map[string][]string{}}
	for name, values := range id.Claims {
		a.Claims["jwt:"+name] = values
	}
	for _, name := range id.Policies {
		if _, err := t.s.opts.Accounts.Policy(name); err == nil {
			a.Policies = append(a.Policies, name)
		}
	}
	for _, name := range id.Groups {
		if _, err := t.s.opts.Accounts.Group(name); err == nil {
			a.Groups = append(a.Groups, name)
		}
	}
	if len(a.Policies)+len(a.Groups) == 0 {
		return sts.Session{}, sts.Refuse(http.StatusForbidden, "AccessDenied",
			"This server has none of the policies %.256q and groups %.256q of the token.", id.Policies, id.Groups)
	}
	rctx.SetUserValue(accountKey, a.Parent)
	if r.Role == "" {
		r.Role = id.Provider
	}
	s, err := t.begin(ctx, r, a)
	s.Subject, s.Audience, s.Provider = id.Subject, id.Audience, id.Provider
	return s, err
}

// refusedToken returns the error for a token that was refused.
func refusedToken(err error) error {
	code := "InvalidIdentityToken"
	switch {
	case errors.Is(err, oidc.ErrExpired):
		code = "ExpiredTokenException"
	case errors.Is(err, oidc.ErrUnreachable):
		code = "IDPCommunicationError"
	}
	return sts.Refuse(http.StatusBadRequest, code, "%s.", errs.MessageOf(err))
}

// federated returns the name of a user whom an issuer has identified. Each user of each provider has a name of its own.
func federated(provider, subject string) string {
	const digits = "0123456789ABCDEF"
	b := []byte("oidc:" + provider + ":")
	for i := range len(subject) {
		c := subject[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._@+:|", c) >= 0 {
			b = append(b, c)
			continue
		}
		b = append(b, '%', digits[c>>4], digits[c&15])
	}
	return string(b)
}
