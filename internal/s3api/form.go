// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/metrics"
	vgw "github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/controllers"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/object"
)

// maxFields is the largest size in bytes of a form before its file. S3 allows 20 KiB.
const maxFields = 32 << 10

// isForm reports whether the body of a request is a form with a file, as browsers upload it.
func isForm(rctx *fasthttp.RequestCtx) bool {
	const kind = "multipart/form-data"
	t := rctx.Request.Header.ContentType()
	return rctx.IsPost() && len(t) >= len(kind) && strings.EqualFold(string(t[:len(kind)]), kind) &&
		!rctx.QueryArgs().Has("delete")
}

// form handles the upload of a form. versitygw's own route reads fields of any size before it checks the signature,
// and does not support signature version 2. form uses the same controller and the same access checks as that route.
func (s *Server) form(ctx fiber.Ctx) (err error) {
	defer s.catch(ctx, &err)
	rctx := ctx.RequestCtx()
	if !isForm(rctx) {
		return ctx.Next()
	}
	watchEnd(ctx)
	if err := s.prepare(rctx); err != nil {
		return answer(ctx, err)
	}
	if bucket, _ := splitPath(rctx); object.IsDirectory(bucket) {
		return answer(ctx, s3err.GetAPIError(s3err.ErrMethodNotAllowed)) // S3 has no forms there
	}
	if err := s.check(rctx, onBucket, true, plainQuery(rctx.QueryArgs())); err != nil {
		return answer(ctx, err)
	}
	rctx.SetUserValue(requestKey, ctx) // used by allowed
	pass(rctx)
	if err := s.formHandler(ctx); err != nil {
		return s.fail(ctx, err)
	}
	mendDenied(s, rctx)
	mendLocation(rctx)
	mendSuccess(rctx)
	return nil
}

// mendSuccess corrects the reply to an uploaded form. In S3, the document of status 201 has no namespace, and a
// redirect names the ETag of the object, too.
func mendSuccess(rctx *fasthttp.RequestCtx) {
	r := &rctx.Response
	switch r.StatusCode() {
	case http.StatusCreated:
		r.SetBody(bytes.Replace(r.Body(), []byte(s3Namespace), nil, 1))
	case http.StatusSeeOther:
		location, etag := string(r.Header.Peek("Location")), string(r.Header.Peek("Etag"))
		if strings.Contains(location, "key=") && !strings.Contains(location, "etag=") && etag != "" {
			r.Header.Set("Location", location+"&etag="+url.QueryEscape(etag))
		}
	}
}

// newFormHandler returns the handler of forms, with its steps in versitygw's order.
func (s *Server) newFormHandler(gateway *vgw.S3ApiServer, b *backend) fiber.Handler {
	region := s.opts.Region
	return controllers.ProcessHandlers(gateway.Router.Ctrl.POSTObject, metrics.ActionPostObject,
		&controllers.Services{MetricsManager: operations{}},
		func(ctx fiber.Ctx) error {
			utils.ContextKeyRegion.Set(ctx, region)
			utils.ContextKeyStartTime.Set(ctx, time.Now())
			utils.ContextKeyRootAccessKey.Set(ctx, s.opts.Accounts.Root().AccessKey)
			utils.ContextKeyAccount.Set(ctx, auth.Account{})
			utils.ContextKeyIsRoot.Set(ctx, false)
			return nil
		},
		middlewares.BucketObjectNameValidator(),
		s.readForm,
		middlewares.ApplyBucketCORS(b, middlewares.BucketFromPath, ""),
		middlewares.ParseAcl(b),
		s.authorizeForm,
	)
}

// readForm reads the fields of a form and verifies its signature.
func (s *Server) readForm(ctx fiber.Ctx) error {
	rctx := ctx.RequestCtx()
	kind, params, err := mime.ParseMediaType(string(rctx.Request.Header.ContentType()))
	if err != nil || kind != fiber.MIMEMultipartForm {
		return s3err.GetPreconditionFailedErr(s3err.ConditionPostBucket)
	}
	body := rctx.Request.BodyStream()
	if body == nil {
		body = bytes.NewReader(rctx.Request.Body())
	}
	bounded := &fieldReader{r: newFormHead(body, params["boundary"]), left: maxFields}
	parser, err := utils.NewMultipartParser(bounded, params["boundary"], int64(rctx.Request.Header.ContentLength()))
	if err != nil {
		return malformedForm(err)
	}
	parsed, err := parser.Parse()
	if bounded.over {
		return s3err.APIError{
			Code: "MaxPostPreDataLengthExceeded", HTTPStatusCode: http.StatusBadRequest,
			Description: "Your POST request fields preceding the upload file were too large.",
		}
	}
	if err != nil {
		return malformedForm(err)
	}
	bounded.file = true
	fields := parsed.Fields
	boundary := strings.TrimSpace(params["boundary"])
	before := int64(rctx.Request.Header.ContentLength()) - parsed.ContentLength - int64(len(boundary)+formEnd)
	if err := nameAfterFile(fields, bounded.seen, before, boundary); err != nil {
		return err
	}
	bounded.seen = nil
	if key := fields["key"]; key != "" && !utils.IsObjectNameValid(key) { // versitygw refuses it without a message
		return invalid("The key " + strconv.QuoteToASCII(key) +
			" cannot be that of a form: its elements . and .. leave nothing of it, or lead out of it.")
	}
	if err := checkFields(fields); err != nil {
		return err
	}
	account, err := s.signerOf(fields)
	if err != nil {
		return err
	}
	if account != nil {
		utils.ContextKeyAccount.Set(ctx, *account)
		utils.ContextKeyIsRoot.Set(ctx, account.Access == s.opts.Accounts.Root().AccessKey)
		utils.ContextKeyAuthenticated.Set(ctx, true)
	}
	utils.ContextKeyObjectPostResult.Set(ctx, middlewares.PostObjectResult{
		Fields: fields, ContentLength: parsed.ContentLength,
		FileRdr: &formFile{r: parsed.FileRdr, end: []byte("\r\n--" + boundary + "\r\n")},
	})
	return nil
}

// authorizeForm checks whether the signer of a form, or everybody, may write its key. versitygw checks only the
// bucket, and would ignore a policy that denies some keys.
func (s *Server) authorizeForm(ctx fiber.Ctx) error {
	form := utils.ContextKeyObjectPostResult.Get(ctx).(middlewares.PostObjectResult)
	bucket, key := strings.Clone(ctx.Params("bucket")), form.Fields["key"]
	defer exactly(ctx.RequestCtx(), object.Ref{Bucket: bucket, Key: reveal(key)}, bucketUse)()
	if !utils.ContextKeyAuthenticated.IsSet(ctx) {
		if err := auth.VerifyPublicAccess(ctx, s.authorizer.backend, auth.PutObjectAction, auth.PermissionWrite, bucket,
			key); err != nil {
			return err
		}
		utils.ContextKeyPublicBucket.Set(ctx, true)
		return nil
	}
	account, _ := utils.ContextKeyAccount.Get(ctx).(auth.Account)
	root, _ := utils.ContextKeyIsRoot.Get(ctx).(bool)
	acl, _ := utils.ContextKeyParsedAcl.Get(ctx).(auth.ACL)
	err := auth.VerifyAccess(ctx, s.authorizer.backend, auth.AccessOptions{
		Acl: acl, AclPermission: auth.PermissionWrite, IsRoot: root, Acc: account, Bucket: bucket, Object: key,
		Actions: []auth.Action{auth.PutObjectAction}, Readonly: s.opts.ReadOnly, Iam: s.backend.iam,
	})
	if err == nil {
		ctx.RequestCtx().SetUserValue(judgedFormKey, true)
	}
	return err
}

// judgedFormKey is the user value that tells GetBucketPolicy that the key of a form may be written.
const judgedFormKey = "nebulaio-judged-form"

// formPolicyText is a policy that lets everybody put objects into the bucket %s. After the check of a form's key,
// versitygw also checks whether the bucket itself may be written, which S3 does not.
const formPolicyText = `{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::%s"}]}`

// judgedForm reports whether versitygw asks about the bucket of a form whose key was checked. It returns false for
// the backend's own questions about one object.
func judgedForm(rctx *fasthttp.RequestCtx) bool {
	judged, _ := rctx.UserValue(judgedFormKey).(bool)
	exact, _ := rctx.UserValue(exactlyKey).(bool)
	return judged && !exact
}

// malformedForm returns the S3 error for a form that cannot be read.
func malformedForm(err error) error {
	var known s3err.S3Error
	if errors.As(err, &known) {
		return known
	}
	return s3err.GetAPIError(s3err.ErrMalformedPOSTRequest)
}

// fieldReader fails if the fields of a form are too long. It does not limit the file behind the fields.
type fieldReader struct {
	r    io.Reader
	left int
	seen []byte // bytes that have been read
	file bool   // whether the fields end here
	over bool
}

var errFields = errors.New("the fields of a form are too long")

func (f *fieldReader) Read(p []byte) (int, error) {
	if f.file {
		return f.r.Read(p)
	}
	if f.left == 0 {
		f.over = true
		return 0, errFields
	}
	n, err := f.r.Read(p[:min(len(p), f.left)])
	f.left -= n
	f.seen = append(f.seen, p[:n]...)
	return n, err
}

// checkFields returns an error if a field asks for something that this server does not support, or cannot be sent
// in a reply's header.
func checkFields(fields map[string]string) error {
	key := fields["key"]
	if key == "" {
		return s3err.PostAuth.MissingField("key")
	}
	if !utils.IsObjectNameValid(key) {
		return s3err.GetAPIError(s3err.ErrBadRequest)
	}
	for name, value := range fields {
		switch {
		case !token(name):
			return invalid("The name of the field " + strconv.QuoteToASCII(name) + " is none of a header or a parameter.")
		case (isRefused(name) || name == "content-md5") && value != "":
			return notImplemented(name, "as a field of a form")
		case name == "key" || name == "policy" || name == "tagging": // never a header
		case !printable(value):
			return invalid("The field " + name + " has control characters, which a header cannot have.")
		}
	}
	if err := checkClass(fields[classHeader], true); err != nil {
		return err
	}
	return nil
}

// signerOf returns the account that has signed a form, or nil for an anonymous form. It removes the fields of a
// version 2 signature, because policies need not name them.
func (s *Server) signerOf(fields map[string]string) (*auth.Account, error) {
	_, v2Key := fields["awsaccesskeyid"]
	_, v2Signature := fields["signature"]
	_, v4Signature := fields["x-amz-signature"]
	switch {
	case (v2Key || v2Signature) && v4Signature:
		return nil, invalid("A form is signed with version 2 or with version 4, not with both.")
	case v2Key || v2Signature:
		return s.signerV2(fields)
	}
	names := []string{"policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"}
	given := 0
	missing := ""
	for _, name := range names {
		if _, ok := fields[name]; ok {
			given++
		} else if missing == "" {
			missing = name
		}
	}
	switch {
	case given == 0:
		return nil, nil
	case given < len(names):
		return nil, s3err.PostAuth.MissingField(missing)
	}
	return s.signerV4(fields)
}

// signerV2 verifies a version 2 signature, which signs the policy with the secret key itself.
func (s *Server) signerV2(fields map[string]string) (*auth.Account, error) {
	for _, name := range []string{"policy", "awsaccesskeyid", "signature"} {
		if fields[name] == "" {
			return nil, s3err.PostAuth.MissingField(name)
		}
	}
	access, signature := fields["awsaccesskeyid"], fields["signature"]
	known, refused := s.backend.iam.holder(access, fields["x-amz-security-token"])
	if refused != nil {
		return nil, refused
	}
	text := fields["policy"]
	if !hmac.Equal([]byte(signature), []byte(signV2(known.Secret, text))) {
		return nil, s3err.GetSignatureDoesNotMatchErr(known.AccessKey, text, signature, utils.HexBytes(text), "", "")
	}
	// A version 4 signature has a date. With version 2, only the policy limits the time.
	var policy struct {
		Expiration time.Time `json:"expiration"`
	}
	doc, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err == nil {
		err = json.Unmarshal(doc, &policy)
	}
	if err == nil && policy.Expiration.After(time.Now().Add(maxV2Expiry)) {
		return nil, invalid("The policy of a form with a signature of version 2 may expire at most 7 days from now. " + useV4)
	}
	delete(fields, "awsaccesskeyid")
	delete(fields, "signature")
	account := toAuth(known)
	return &account, nil
}

// signedFor is the validity of a form's version 4 signature.
const signedFor = time.Hour

// signerV4 verifies a version 4 signature.
func (s *Server) signerV4(fields map[string]string) (*auth.Account, error) {
	if algorithm := fields["x-amz-algorithm"]; algorithm != "AWS4-HMAC-SHA256" {
		return nil, s3err.GetInvalidArgumentErr(s3err.InvalidArgOnlyAws4HmacSha256, algorithm)
	}
	at, err := time.Parse(amzDate, fields["x-amz-date"])
	if err != nil {
		return nil, s3err.GetInvalidArgumentErr(s3err.InvalidArgDateHeader, fields["x-amz-date"])
	}
	if time.Since(at) > signedFor {
		return nil, s3err.InvalidPolicyDocument.PolicyExpired()
	}
	creds, err := utils.ParseCredentials(fields["x-amz-credential"], s3err.PostAuth)
	if err != nil {
		return nil, err
	}
	if day := fields["x-amz-date"][:len("20060102")]; creds.Date != day {
		// The signing key depends on the day. Without this check, an old signing key could sign for today.
		return nil, invalid("The day of x-amz-credential is " + strconv.QuoteToASCII(creds.Date) +
			", expected that of x-amz-date: " + day)
	}
	if creds.Region != s.opts.Region {
		return nil, s3err.PostAuth.IncorrectRegion(fields["x-amz-credential"], s.opts.Region, creds.Region)
	}
	root := toAuth(s.opts.Accounts.Root())
	root.Role = auth.RoleAdmin
	key, account, err := auth.ResolveDerivedKey(s.backend.iam, root, creds.Access,
		fields["x-amz-security-token"], creds.Date, creds.Region, "s3")
	switch {
	case errors.Is(err, auth.ErrNoSuchUser):
		return nil, s3err.GetInvalidAccessKeyIdErr(creds.Access)
	case errors.Is(err, auth.ErrInvalidSessionToken):
		return nil, s3err.GetAPIError(s3err.ErrInvalidToken)
	case err != nil:
		return nil, err
	}
	text, signature := fields["policy"], fields["x-amz-signature"]
	want, err := utils.SignPostPolicy(text, key)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal([]byte(want), []byte(signature)) {
		return nil, s3err.GetSignatureDoesNotMatchErr(account.Access, text, signature, utils.HexBytes(text), "", "")
	}
	return &account, nil
}
