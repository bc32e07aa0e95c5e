// SPDX-License-Identifier: Apache-2.0

package wire

// These constants are the values of Error.Code, for programs. A client that does not know a code uses Error.Kind
// instead.
const (
	CodeBadMessage   = "BadMessage"   // a message is malformed or out of order; the connection ends
	CodeVersion      = "Version"      // client and server have no protocol version in common; the connection ends
	CodeAccessDenied = "AccessDenied" // the key is unknown, the secret is wrong, or a policy denies the request
	// CodeRelayed means that the client is connected to another process, which relays its login. The connection ends.
	CodeRelayed            = "Relayed"
	CodeTooManyConnections = "TooManyConnections" // the connection ends
	// The client was silent for longer than Greeting.Idle; the connection ends.
	CodeIdle = "Idle"
	CodeBusy = "Busy" // another process has a lease on the object's file; the client may try again
	// CodeDraining means that the server is stopping. Clients cannot open anything new, but may finish with open
	// objects and drafts.
	CodeDraining        = "Draining"
	CodeNoSuchBucket    = "NoSuchBucket"
	CodeNoSuchKey       = "NoSuchKey"
	CodeNoSuchVersion   = "NoSuchVersion"
	CodeDeleteMarker    = "DeleteMarker" // the version is a delete marker and has no content
	CodeInvalidName     = "InvalidName"
	CodeInvalidRange    = "InvalidRange" // the range is not within the object or the draft
	CodeInvalidArgument = "InvalidArgument"
	// The size exceeds MaxTransferSize, MaxDraft or the store's largest object.
	CodeTooLarge         = "TooLarge"
	CodeDeviceNotAllowed = "DeviceNotAllowed" // the GPU is not in Greeting.Devices
	CodeNoSuchHandle     = "NoSuchHandle"     // the handle was never opened, or is closed
	CodeTooManyHandles   = "TooManyHandles"   // the access key has MaxHandles handles open
	CodeTooManyFiles     = "TooManyFiles"     // the server has no file descriptor left
	// Some process can still write to the draft's file; the draft stays.
	CodeWriterLeft         = "WriterLeft"
	CodeBadSums            = "BadSums" // the checksums are not those of the content; the draft stays
	CodePreconditionFailed = "PreconditionFailed"
	CodeNoSpace            = "NoSpace"
	CodeReadOnly           = "ReadOnly"
	CodeUnsupported        = "Unsupported"
	CodeDamaged            = "Damaged"
	CodeInternal           = "Internal"
)

// Codes returns every code, for tables of counters.
func Codes() []string {
	return []string{
		CodeBadMessage, CodeVersion, CodeAccessDenied, CodeRelayed, CodeTooManyConnections, CodeIdle, CodeBusy,
		CodeDraining, CodeNoSuchBucket, CodeNoSuchKey,
		CodeNoSuchVersion, CodeDeleteMarker, CodeInvalidName, CodeInvalidRange, CodeInvalidArgument, CodeTooLarge,
		CodeDeviceNotAllowed,
		CodeNoSuchHandle, CodeTooManyHandles, CodeTooManyFiles, CodeWriterLeft, CodeBadSums, CodePreconditionFailed,
		CodeNoSpace, CodeReadOnly,
		CodeUnsupported, CodeDamaged, CodeInternal,
	}
}
