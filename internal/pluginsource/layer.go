// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginsource

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

// unpackers contains, for each media type of a layer, the function that reads the module from it. The layer is either
// the module itself or an archive that contains the module. A function reads as much of the layer as it needs. size is
// the size of the layer.
var unpackers = map[types.MediaType]func(layer io.Reader, size int64) ([]byte, error){
	"application/wasm":                                  moduleItself, // media type of the CNCF's Wasm OCI artifact layout
	"application/vnd.wasm.content.layer.v1+wasm":        moduleItself, // media type of wasm-to-oci
	"application/vnd.module.wasm.content.layer.v1+wasm": moduleItself, // media type of Istio and Solo.io
	types.OCIUncompressedLayer:                          fromTar,
	types.DockerUncompressedLayer:                       fromTar,
	types.OCILayer:                                      fromTarGzip,
	types.DockerLayer:                                   fromTarGzip,
}

func moduleItself(layer io.Reader, size int64) ([]byte, error) {
	return readAll(layer, size, MaxModuleBytes, "the module")
}

func fromTarGzip(layer io.Reader, _ int64) ([]byte, error) {
	reader, err := gzip.NewReader(layer)
	if err != nil {
		return nil, Errorf(WrongMediaType, "decompressing the layer, %w", err)
	}
	archive := limit(reader, maxArchiveBytes, "the decompressed layer")
	wasm, err := fromTar(archive, 0)
	if err != nil {
		return nil, err
	}
	// The data after the archive is limited, too. Reading to the end verifies the checksum.
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return nil, fmt.Errorf("decompressing the layer, %w", err)
	}
	return wasm, nil
}

// fromTar returns the file of a tar archive whose name ends with .wasm. There must be exactly one.
func fromTar(archive io.Reader, _ int64) (wasm []byte, err error) {
	found := ""
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		var known *Error
		switch {
		case errors.Is(err, io.EOF) && found == "":
			return nil, Errorf(WrongMediaType, "the layer is an archive without a file *.wasm")
		case errors.Is(err, io.EOF):
			return wasm, nil
		case errors.As(err, &known):
			return nil, err
		case err != nil:
			return nil, Errorf(WrongMediaType, "reading the layer as an archive, %w", err)
		case header.Typeflag != tar.TypeReg || path.Ext(header.Name) != ".wasm":
			continue
		case found != "":
			return nil, Errorf(WrongMediaType, "the layer is an archive with more than one file *.wasm: %q and %q", found, header.Name)
		}
		found = header.Name
		if wasm, err = readAll(reader, header.Size, MaxModuleBytes, fmt.Sprintf("the file %q", header.Name)); err != nil {
			return nil, err
		}
	}
}
