// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"crypto/subtle"
	"encoding/xml"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/express"
)

// caller is the author of a request, whose signature was verified.
type caller struct {
	account   iam.Account
	session   *express.Session // nil if the account itself signed the request
	signature *express.Signature
	key       []byte // that verified the signature
	payload   string // value of x-amz-content-sha256
}

// accountKey is the user value that holds the access key of the account of a request, for Event.
const accountKey = "nebulaio-account"

// authenticate verifies the signature of a request for directory buckets.
func (d *directories) authenticate(a *asked) (caller, error) {
	var c caller
	rctx := a.rctx
	h, args := &rctx.Request.Header, rctx.QueryArgs()
	authorization := string(h.Peek("Authorization"))
	presigned := args.Has("X-Amz-Algorithm") || args.Has("X-Amz-Signature") || args.Has("X-Amz-Credential")
	var err error
	switch {
	case presigned: // checkMechanism has refused a second signature
		c.signature, err = express.ParseQuery(func(name string) string { return string(args.Peek(name)) })
	case authorization == "":
		return c, s3err.GetAPIError(s3err.ErrAccessDenied) // nothing in a directory bucket is public
	default:
		date := h.Peek("X-Amz-Date")
		if len(date) == 0 {
			date = h.Peek("Date")
		}
		c.signature, err = express.ParseHeader(authorization, string(date), string(h.Peek(express.TokenHeader)))
	}
	if err != nil {
		return c, err
	}
	s := c.signature
	switch {
	case s.Service != express.Service && s.Service != "s3":
		return c, s3err.MalformedAuth.IncorrectService(express.Service, s.Service)
	case s.Region != d.s.opts.Region:
		return c, s3err.MalformedAuth.IncorrectRegion(d.s.opts.Region, s.Region)
	}
	if err := s.CheckTime(time.Now()); err != nil {
		return c, err
	}
	if err := d.identify(&c); err != nil {
		return c, err
	}
	if c.payload, err = payloadOf(rctx, presigned); err != nil {
		return c, err
	}
	if err := s.Verify(requestOf(rctx, c.payload), c.key); err != nil {
		return c, err
	}
	if err := c.checkToken(rctx, d.s.backend.iam); err != nil {
		return c, err
	}
	rctx.SetUserValue(accountKey, c.account.AccessKey)
	return c, nil
}

// identify finds the account and the session of a signature, and the key that verifies it.
func (d *directories) identify(c *caller) error {
	s := c.signature
	access := s.Access
	if s.Token != "" {
		var err error
		if c.session, err = d.sessions.Find(s.Token); err != nil {
			return err
		}
		if subtle.ConstantTimeCompare([]byte(c.session.Access), []byte(s.Access)) != 1 {
			return s3err.GetInvalidAccessKeyIdErr(s.Access)
		}
		access = c.session.Account
	}
	account, err := d.s.opts.Accounts.Get(access)
	if err != nil {
		return s3err.GetInvalidAccessKeyIdErr(s.Access)
	}
	c.account = account
	if c.session == nil {
		c.key = express.DeriveKey(account.Secret, s.Day, s.Region, s.Service)
		return nil
	}
	if !c.session.Proves(d.sessions, account.Secret) {
		return refusal(http.StatusBadRequest, "InvalidToken", "The keys of the account have changed since the session began.")
	}
	c.key = c.session.Key(s.Day, s.Region, s.Service)
	return nil
}

// checkToken checks the session token of a request that temporary keys have signed. A request in a session of a
// directory bucket has no such token: the token was checked when the session began.
func (c *caller) checkToken(rctx *fasthttp.RequestCtx, all accounts) error {
	if c.session != nil {
		return nil
	}
	token := rctx.Request.Header.Peek(securityToken)
	if c.signature.Presigned {
		token = rctx.QueryArgs().Peek(securityToken)
	}
	if _, err := all.holder(c.account.AccessKey, string(token)); err != nil {
		return err
	}
	return nil
}

// payloadOf returns what the signature covers of the payload.
func payloadOf(rctx *fasthttp.RequestCtx, presigned bool) (string, error) {
	payload := string(rctx.Request.Header.Peek("X-Amz-Content-Sha256"))
	if payload == "" && presigned {
		if payload = string(rctx.QueryArgs().Peek("X-Amz-Content-Sha256")); payload == "" {
			payload = express.Unsigned
		}
	}
	if payload == "" {
		return "", s3err.GetAPIError(s3err.ErrMissingContentSha256)
	}
	return payload, nil
}

// requestOf returns what a signature covers of a request.
func requestOf(rctx *fasthttp.RequestCtx, payload string) *express.Request {
	h := &rctx.Request.Header
	path, _ := rctx.UserValue(originalPath).(string)
	if path == "" {
		path = unescape(string(rctx.URI().PathOriginal()))
	}
	r := &express.Request{Method: string(h.Method()), Path: path, Payload: payload,
		Values: func(name string) [][]byte {
			if name == "host" {
				return [][]byte{h.Host()}
			}
			return h.PeekAll(name)
		},
		Names: func(f func([]byte)) {
			for k := range h.All() {
				if len(k) > 6 && k[5] == '-' && bytes.EqualFold(k[:6], []byte("x-amz-")) {
					f(k)
				}
			}
		},
	}
	if args := rctx.QueryArgs(); args.Len() > 0 {
		for k, v := range args.All() {
			if string(k) != "X-Amz-Signature" {
				r.Query = append(r.Query, [2]string{string(k), string(v)})
			}
		}
	}
	return r
}

// allowed returns nil if the caller may do the action. A session was checked when it began.
func (d *directories) allowed(a *asked, action object.Action) error {
	if a.by.session != nil {
		return nil
	}
	return d.permits(a, action, a.key)
}

// permits checks the permission of the account by the rules of S3.
func (d *directories) permits(a *asked, action object.Action, key string) error {
	err := d.s.authorizer.Authorize(patient(a.rctx), object.Access{Account: a.by.account.AccessKey, Action: action,
		Bucket: a.bucket, Key: key})
	if err == nil {
		return nil
	}
	if known := d.s.backend.s3Error("Authorize", object.Ref{Bucket: a.bucket, Key: key},
		err); codeOf(known) != "InternalError" &&
		codeOf(known) != "AccessDenied" {
		return known
	}
	// The message of versitygw would name the key in the form that policies compare.
	return s3err.GetAPIError(s3err.ErrAccessDenied)
}

// sessionReply is the reply to CreateSession.
type sessionReply struct {
	XMLName     xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CreateSessionResult"`
	Credentials struct {
		SessionToken, SecretAccessKey, AccessKeyID, Expiration string
	}
}

// createSession begins a session.
func (d *directories) createSession(a *asked) error {
	a.rctx.SetUserValue(operationKey, "CreateSession")
	if a.by.session != nil {
		return d.refuse(a.ctx, refusal(http.StatusForbidden, "AccessDenied", "A session cannot begin another session."))
	}
	s, err := d.grant(a, express.Mode(a.rctx.Request.Header.Peek("X-Amz-Create-Session-Mode")))
	if err == nil {
		err = d.sessions.Begin(s, a.by.account.Secret, d.o.Session)
	}
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	var reply sessionReply
	c := &reply.Credentials
	c.SessionToken, c.SecretAccessKey, c.AccessKeyID = s.Token, s.Secret, s.Access
	c.Expiration = time.UnixMilli(s.Ends).UTC().Format(time.RFC3339)
	text, err := xml.Marshal(reply)
	if err != nil {
		return d.refuse(a.ctx, err)
	}
	return sendXML(a.ctx, bytes.ReplaceAll(text, []byte("AccessKeyID>"), []byte("AccessKeyId>")))
}

// sendXML replies with a document.
func sendXML(ctx fiber.Ctx, text []byte) error {
	ctx.Response().Header.SetContentType(fiber.MIMEApplicationXML)
	return ctx.Status(http.StatusOK).Send(append([]byte(xml.Header), text...))
}

// grant decides which session an account gets. Without a mode, the account gets the most that it may do.
//
// SDKs begin a session for a bucket before they create the bucket. So an account that may create buckets gets a session
// for a bucket that does not exist.
func (d *directories) grant(a *asked, mode express.Mode) (*express.Session, error) {
	if mode != "" && mode != express.ReadOnly && mode != express.ReadWrite {
		return nil, invalid("The session mode is ReadOnly or ReadWrite, or not given.")
	}
	s := &express.Session{Account: a.by.account.AccessKey, Bucket: strings.Clone(a.bucket), Mode: mode}
	bk, err := d.s.backend.bucketOf(a.rctx, a.bucket)
	if err != nil {
		if d.s.backend.iam.mayCreate(a.by.account, a.bucket) != nil {
			return nil, err
		}
		if s.Mode == "" {
			s.Mode = express.ReadWrite
		}
		return s, d.nameAllowed(a.bucket)
	}
	s.Created = bk.Created.UnixMilli()
	rules, err := d.s.authorizer.settingsOf(patient(a.rctx), "CreateSession", a.bucket)
	if err != nil {
		return nil, err
	}
	subject, err := d.s.opts.Accounts.Subject(a.by.account.AccessKey)
	if err != nil {
		return nil, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if !rules.plain && !(subject.Plain() && a.by.account.Role == iam.RoleAdmin) || !subject.Uniform() {
		return nil, refusal(http.StatusForbidden, "AccessDenied",
			"The policy of the bucket or of the user treats keys or clients differently, "+
				"so that there are no sessions. Turn sessions off in the client (AWS_S3_DISABLE_EXPRESS_SESSION_AUTH=true).")
	}
	for _, action := range []object.Action{object.ActionGet, object.ActionList} {
		if err := d.permits(a, action, "any"); err != nil {
			return nil, err
		}
	}
	if mode == express.ReadOnly {
		return s, nil
	}
	for _, action := range []object.Action{object.ActionPut, object.ActionDelete} {
		if err := d.permits(a, action, "any"); err != nil {
			if mode == express.ReadWrite {
				return nil, err
			}
			s.Mode = express.ReadOnly
			return s, nil
		}
	}
	s.Mode = express.ReadWrite
	return s, nil
}
