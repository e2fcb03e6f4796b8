;; Replaces all metadata.
;; want: GuardError: metadata
(data (i32.const 0) "metadata")
(data (i32.const 32) "{\22name\22:\22other\22}")
(func $bad (call $set_json (i32.const 1) (i32.const 0) (i32.const 8) (i32.const 32) (i32.const 16)))
