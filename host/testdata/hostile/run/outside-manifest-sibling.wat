;; Writes a field whose name begins like one of its manifest.
;; want: GuardError: manifest
;; writes: metadata.labels
(data (i32.const 0) "metadata.labelsAndMore")
(data (i32.const 128) "x")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 22) (i32.const 128) (i32.const 1)))
