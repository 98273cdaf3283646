module kafkawire/compat

go 1.23.8

require (
	github.com/twmb/franz-go v1.5.3
	github.com/twmb/franz-go/pkg/kadm v1.0.0
)

require (
	github.com/klauspost/compress v1.15.4 // indirect
	github.com/pierrec/lz4/v4 v4.1.14 // indirect
	github.com/twmb/franz-go/pkg/kmsg v1.1.0 // indirect
)
