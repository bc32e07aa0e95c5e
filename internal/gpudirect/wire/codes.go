// SPDX-License-Identifier: Apache-2.0

package wire

// The Code constants are the values of Error.Code, which programs can compare. If a client does not know an error
// code, it uses Error.Kind.
const (
	// CodeBadMessage means that a message is malformed or out of order; the server then closes the connection.
	CodeBadMessage = "BadMessage"
	// CodeVersion means that client and server have no protocol version in common; the server then closes the
	// connection.
	CodeVersion = "Version"
	// CodeAccessDenied means that the access key is unknown, the secret is wrong, or a policy denies the request.
	CodeAccessDenied = "AccessDenied"
	// CodeRelayed means that another process relays the client's login to the server; the server then closes the
	// connection.
	CodeRelayed = "Relayed"
	// CodeTooManyConnections means that the server, the user or the access key has too many connections; the server
	// then closes the connection.
	CodeTooManyConnections = "TooManyConnections"
	// CodeIdle means that the client was silent for longer than Greeting.Idle, or did not log in in time; the server
	// then closes the connection.
	CodeIdle = "Idle"
	// CodeBusy means that another process has a lease on the object's file. After CodeBusy the client may try again.
	CodeBusy = "Busy"
	// CodeDraining means that the server is stopping. While the server is stopping, clients cannot open anything new,
	// but may finish with open objects and drafts.
	CodeDraining      = "Draining"
	CodeNoSuchBucket  = "NoSuchBucket"
	CodeNoSuchKey     = "NoSuchKey"
	CodeNoSuchVersion = "NoSuchVersion"
	// CodeDeleteMarker means that the requested version is a delete marker, which has no content.
	CodeDeleteMarker = "DeleteMarker"
	CodeInvalidName  = "InvalidName"
	// CodeInvalidRange means that a range is not within the object or the draft.
	CodeInvalidRange    = "InvalidRange"
	CodeInvalidArgument = "InvalidArgument"
	// CodeTooLarge means that a size exceeds MaxTransferSize, MaxDraft or the store's largest object.
	CodeTooLarge = "TooLarge"
	// CodeDeviceNotAllowed means that the GPU is not in Greeting.Devices.
	CodeDeviceNotAllowed = "DeviceNotAllowed"
	// CodeNoSuchHandle means that the connection has no open handle with this number.
	CodeNoSuchHandle = "NoSuchHandle"
	// CodeTooManyHandles means that the access key already has MaxHandles open handles.
	CodeTooManyHandles = "TooManyHandles"
	// CodeTooManyFiles means that the server has no file descriptor left.
	CodeTooManyFiles = "TooManyFiles"
	// CodeWriterLeft means that some process can still write to the draft's file. After CodeWriterLeft the draft
	// stays open, and the client may commit it again.
	CodeWriterLeft = "WriterLeft"
	// CodeBadSums means that the checksums in an AddSums or a Commit are wrong or out of order. After CodeBadSums the
	// draft stays open.
	CodeBadSums            = "BadSums"
	CodePreconditionFailed = "PreconditionFailed"
	CodeNoSpace            = "NoSpace"
	CodeReadOnly           = "ReadOnly"
	CodeUnsupported        = "Unsupported"
	// CodeNotCached means that another S3 server keeps the object, and that the disk of this server does not have the
	// whole of it yet. A read over HTTP fetches the object; then the door can open it.
	CodeNotCached = "NotCached"
	// CodeEncrypted means that the object is encrypted on the server's disk, so that its file is of no use to a client.
	// The server decrypts the object in a read over HTTP.
	CodeEncrypted = "Encrypted"
	CodeDamaged   = "Damaged"
	CodeInternal  = "Internal"
)

// Codes returns every error code of the door, for tables of counters.
func Codes() []string {
	return []string{
		CodeBadMessage, CodeVersion, CodeAccessDenied, CodeRelayed, CodeTooManyConnections, CodeIdle, CodeBusy,
		CodeDraining, CodeNoSuchBucket, CodeNoSuchKey,
		CodeNoSuchVersion, CodeDeleteMarker, CodeInvalidName, CodeInvalidRange, CodeInvalidArgument, CodeTooLarge,
		CodeDeviceNotAllowed,
		CodeNoSuchHandle, CodeTooManyHandles, CodeTooManyFiles, CodeWriterLeft, CodeBadSums, CodePreconditionFailed,
		CodeNoSpace, CodeReadOnly,
		CodeUnsupported, CodeNotCached, CodeEncrypted, CodeDamaged, CodeInternal,
	}
}
