// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/metrics"
	vgw "github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// build connects versitygw's routes with the backend, and configures the HTTP server.
func (s *Server) build() error {
	o := s.opts
	root := o.Accounts.Root()
	opts := []vgw.Option{
		vgw.WithQuiet(), vgw.WithKeepAlive(),
		vgw.WithConcurrencyLimiter(o.Limits.Connections, o.Limits.Requests),
		vgw.WithMpMaxParts(object.MaxParts),
		vgw.WithRoute(fiber.MethodPost, "/:bucket", s.form),
		vgw.WithMiddleware("/", s.guard),
	}
	if o.Admin {
		opts = append(opts, vgw.WithAdminServer())
	}
	if o.ReadOnly {
		opts = append(opts, vgw.WithReadOnly())
	}
	utils.SetBucketNameValidationStrict(true)
	b := newBackend(o)
	gateway, err := vgw.New(b, middlewares.RootUserConfig{Access: root.AccessKey, Secret: root.Secret},
		o.Region, b.iam, nil, nil, nil, operations{}, opts...)
	if err != nil {
		return errs.Wrap("start the S3 front end", "", err)
	}
	app, err := appOf(gateway)
	if err != nil {
		return err
	}
	s.backend = b
	s.signature = middlewares.VerifyV4Signature(middlewares.RootUserConfig{Access: root.AccessKey, Secret: root.Secret},
		b.iam, o.Region, false, true, true)
	s.creation = middlewares.VerifyV4Signature(middlewares.RootUserConfig{Access: root.AccessKey, Secret: root.Secret},
		b.iam, o.Region, false, true, false)
	s.authorizer = newAuthorizer(o, b, app)
	s.verifier = &verifier{accounts: o.Accounts, region: o.Region}
	s.formHandler = s.newFormHandler(gateway, b)
	if s.directories, err = newDirectories(s); err != nil {
		return errs.Wrap("start the S3 front end", "", err)
	}
	s.tokens = newTokenService(s)
	handler := app.Handler()
	s.http = app.Server()
	s.http.Handler = s.observe(handler)
	s.http.Name = o.ServerName
	s.http.NoDefaultServerHeader = false
	s.http.Concurrency = o.Limits.Connections
	s.http.ReadBufferSize = o.Limits.HeaderBytes
	s.http.ReadTimeout = o.Limits.Header // observe removes the deadline when the header has arrived
	s.http.IdleTimeout = o.Limits.Idle
	// The HTTP server reads the first 8 KiB of a body before it calls observe. For content, these bytes get the
	// stall time. For documents, they have to arrive within the time of the header, so that clients cannot send
	// documents slowly.
	s.http.HeaderReceived = func(h *fasthttp.RequestHeader) (c fasthttp.RequestConfig) {
		if seemsContent(h) {
			c.ReadTimeout = o.Limits.Stall
		}
		return c
	}
	s.http.TCPKeepalive = true
	s.http.TCPKeepalivePeriod = 15 * time.Second
	s.http.ErrorHandler = errorHandler(s.http.ErrorHandler)
	// form reads forms as a stream after the check of their signature. If the HTTP server parsed forms, anybody
	// could fill memory and the directory for temporary files.
	s.http.DisablePreParseMultipartForm = true
	return nil
}

// seemsContent reports whether the body of a request is probably content, before the path and the arguments are
// parsed.
func seemsContent(h *fasthttp.RequestHeader) bool {
	if !h.IsPut() {
		return false
	}
	_, args, has := bytes.Cut(h.RequestURI(), []byte("?"))
	return !has || bytes.Contains(args, []byte("partNumber=")) || bytes.Contains(args, []byte("x-id=")) ||
		bytes.Contains(args, []byte("Signature="))
}

// appOf returns the private fiber application of a gateway. We need it to set our own listener, configuration and
// deadlines.
func appOf(gateway *vgw.S3ApiServer) (*fiber.App, error) {
	f := reflect.ValueOf(gateway).Elem().FieldByName("app")
	if !f.IsValid() || f.Type() != reflect.TypeFor[*fiber.App]() || f.IsNil() {
		return nil, errs.New(errs.Unsupported, "start the S3 front end", "",
			fmt.Sprintf("this versitygw has no field app of type %v", reflect.TypeFor[*fiber.App]()))
	}
	return (*fiber.App)(f.UnsafePointer()), nil
}

// errorHandler replies to a request that could not be read. versitygw would report a client that is too slow or
// disconnects as a failure of the server.
func errorHandler(next func(*fasthttp.RequestCtx, error)) func(*fasthttp.RequestCtx, error) {
	return func(ctx *fasthttp.RequestCtx, err error) {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
			// A client that has closed only its sending side can still read this reply.
			cut := s3err.GetAPIError(s3err.ErrIncompleteBody)
			end(ctx, cut)
			return
		}
		var long *fasthttp.ErrSmallBuffer
		if errors.As(err, &long) {
			next(ctx, err)
			return
		}
		var late net.Error
		if !errors.As(err, &late) || !late.Timeout() {
			refuseFraming(ctx, "its first line, its host or one of its headers is malformed")
			return
		}
		e := s3err.APIError{
			Code: "RequestTimeout", Description: "Your socket connection to the server was not read from or written to " +
				"within the timeout period.",
			HTTPStatusCode: http.StatusRequestTimeout,
		}
		ctx.SetStatusCode(e.HTTPStatusCode)
		ctx.SetContentType(fiber.MIMEApplicationXML)
		ctx.SetBody(e.XMLBody(utils.NewS3RequestID(), utils.NewS3HostID()))
	}
}

// operations receives the operation of each request from versitygw.
type operations struct{}

// Send records the operation and the error of a request. If the error is not an S3 error, Send panics with a value of
// type failure, and the guard or the form handler recovers from the panic.
func (operations) Send(ctx fiber.Ctx, err error, action string, _ int64, _ int) {
	rctx := ctx.RequestCtx()
	rctx.SetUserValue(operationKey, metrics.ActionMap[action].Name)
	if err == nil {
		return
	}
	rctx.SetUserValue(errorKey, err)
	// the guard or the form handler recovers it
	if _, known := err.(s3err.S3Error); !known && rctx.UserValue(requestKey) != nil {
		panic(failure{err})
	}
}

func (operations) Close() {}
