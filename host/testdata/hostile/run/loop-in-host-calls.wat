;; Never ends, and lets the host do the work.
;; want: OutOfFuelError: used up
(data (i32.const 0) "metadata.labels")
(func $bad (loop $l (drop (call $len (i32.const 1) (i32.const 0) (i32.const 15))) (br $l)))
