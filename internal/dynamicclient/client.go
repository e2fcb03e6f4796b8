// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package dynamicclient creates dynamic clients that decode watch events in one pass.
//
// client-go reads the JSON of a watch event about nine times: to find its end, to validate and decode the envelope, to
// read the kind of the object, to check whether the object is a list, and to build the object. Each pass validates the
// text again. This takes half of the CPU time of a virtual kubelet, which mostly watches, and a quarter of the CPU time
// of the controllers. In this package, a scan for brackets finds the end of an event, and a single pass validates and
// builds the object. client-go still decodes errors, and lists whose objects are decoded completely.
package dynamicclient

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Options are the options of a client. With the zero value, objects are decoded with the same result as with client-go.
type Options struct {
	// DropManagedFields drops the managedFields of single objects and of the objects in watch events, but not of the
	// objects in lists.
	DropManagedFields bool
	// Text contains the names of top-level fields that are not decoded. The value of such a field is a string with the
	// JSON text, which Value decodes.
	Text []string
	// Limits are the limits of each object. An object that exceeds them is decoded without its content (see Excess).
	Limits Limits
}

// New returns a client like dynamic.NewForConfig. It is safe for concurrent use.
func New(config *rest.Config, options Options) (dynamic.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.NegotiatedSerializer = negotiated{config.NegotiatedSerializer, &parsers{options: options}}
	config.GroupVersion, config.APIPath = nil, "/" // the client uses complete paths
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to %s, %w", config.Host, err)
	}
	restClient, err := rest.UnversionedRESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("preparing the client of %s, %w", config.Host, err)
	}
	return dynamic.New(restClient), nil
}

// negotiated is a negotiated serializer with other JSON decoders.
type negotiated struct {
	runtime.NegotiatedSerializer
	parsers *parsers
}

func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := append([]runtime.SerializerInfo(nil), n.NegotiatedSerializer.SupportedMediaTypes()...)
	for i := range infos {
		if infos[i].MediaType != runtime.ContentTypeJSON {
			continue
		}
		infos[i].Serializer = objects{infos[i].Serializer, n.parsers}
		stream := *infos[i].StreamSerializer
		stream.Serializer, stream.Framer = events{stream.Serializer}, framer{stream.Framer}
		infos[i].StreamSerializer = &stream
	}
	return infos
}

// framer finds the ends of the events in a stream. It does not change how frames are written.
type framer struct{ runtime.Framer }

func (framer) NewFrameReader(r io.ReadCloser) io.ReadCloser { return newFrameReader(r) }

var _ runtime.Framer = framer{json.Framer}
