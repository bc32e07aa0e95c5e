module example.org/public

go 1.26.0

require github.com/nebulaio/nebulaio v0.0.0

require (
	github.com/aws/aws-sdk-go-v2 v1.45.1 // indirect
	github.com/aws/smithy-go v1.28.1 // indirect
	github.com/ebitengine/purego v0.11.2 // indirect
	github.com/klauspost/cpuid/v2 v2.4.0 // indirect
	github.com/minio/crc64nvme v1.1.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/nebulaio/nebulaio => ../..
